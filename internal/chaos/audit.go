package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// A Report counts what happened to the events of a round.
type Report struct {
	Events     uint64 // pushed, and not lost when Redis was restored
	Forgotten  uint64 // pushed, and lost when Redis was restored
	Rows, Dead uint64 // rows and dead letters that were read back
	Lost       uint64 // expected rows and dead letters that were not found
	Duplicated uint64 // rows and dead letters found more often than expected
	Unknown    uint64 // numbers found that were never pushed
	Examples   []string
}

// String returns the counts on one line.
func (r Report) String() string {
	return fmt.Sprintf("%d events, %d forgotten by Redis, %d rows, %d dead letters: %d lost, %d duplicated",
		r.Events, r.Forgotten, r.Rows, r.Dead, r.Lost, r.Duplicated)
}

// Err returns nil when every event was delivered exactly once, and otherwise an error
// that shows some that were not.
func (r *Report) Err() error {
	if r.Lost+r.Duplicated+r.Unknown == 0 {
		return nil
	}
	return fmt.Errorf("%d lost, %d duplicated, %d that were never pushed\n%s",
		r.Lost, r.Duplicated, r.Unknown, strings.Join(r.Examples, "\n"))
}

const maxExamples = 10

// counts holds how often each event was found, by its number.
type counts []uint8

func (c *counts) add(n uint64) {
	if n >= uint64(len(*c)) {
		*c = append(*c, make([]uint8, int(n)+1-len(*c))...)
	}
	if (*c)[n] < 255 {
		(*c)[n]++
	}
}

func (c counts) at(n uint64) uint8 {
	if n < uint64(len(c)) {
		return c[n]
	}
	return 0
}

// deliveries counts what was read back from the sinks and dead-letter stores.
type deliveries struct {
	sinks []counts // rows and dead letters of each sink
	dead  counts   // dead letters of whole events
	state counts   // changes of the state; nil without one
}

// auditSinks reads every sink and dead-letter store back and compares the events in
// them with the expected ones.
func (s *testbed) auditSinks(ctx context.Context) (Report, error) {
	f, r := &deliveries{sinks: make([]counts, len(s.round.Pipeline.Sinks))}, Report{}
	for i, sink := range s.round.Pipeline.Sinks {
		note := func(n uint64) {
			f.sinks[i].add(n)
			r.Rows++
		}
		if err := s.readSink(ctx, i, sink, note); err != nil {
			return r, err
		}
	}
	if err := s.readDeadLetters(f, &r); err != nil {
		return r, err
	}
	if s.round.Pipeline.HasState() {
		f.state = counts{}
		err := s.config.ReadState(ctx, s.workers[0].config, func(n uint64, times int) {
			for range times {
				f.state.add(n)
			}
		})
		if err != nil {
			return r, fmt.Errorf("read the state: %w", err)
		}
	}
	s.compareAll(f, &r)
	return r, nil
}

func (s *testbed) readSink(ctx context.Context, i int, sink Sink, each func(uint64)) error {
	if d := s.database(sink.Kind); d != nil {
		return d.readNumbers(ctx, tableName(i), sink.Column, each)
	}
	if sink.Kind == File {
		return readFiles(filesFolder(s.filesFolder(), i), sink.Column, each)
	}
	return s.config.ReadStore(ctx, s.workers[0].dataFolder(), tableName(i), sink.Column, each)
}

// A letterKey identifies a dead letter across the stores of several workers.
type letterKey struct {
	partition string
	position  uint64
	sink      string
	number    uint32
}

// A failedRow is the row of an event, or the event if sink is empty, that became a dead letter.
type failedRow struct {
	event  uint64
	sink   string
	number uint32
}

// readDeadLetters reads the dead letters of all workers. A letter counts once if two
// workers stored it because one took the partition over from the other. It also counts
// once if a killed worker left it uncommitted and the event failed again elsewhere.
func (s *testbed) readDeadLetters(f *deliveries, r *Report) error {
	final, open := make(map[letterKey]failedRow), make(map[failedRow]bool)
	for _, w := range s.workers {
		store, err := deadletter.Open(w.dataFolder())
		if err != nil {
			return err
		}
		for letter, err := range store.List(deadletter.Filter{}) {
			if err != nil {
				return errors.Join(err, store.Close())
			}
			n, err := s.eventNumber(letter.Original)
			if err != nil {
				return errors.Join(err, store.Close())
			}
			one := failedRow{n, letter.Sink, letter.Number}
			if letter.Uncommitted {
				open[one] = true
			} else {
				final[letterKey{letter.Partition, letter.Position, letter.Sink, letter.Number}] = one
			}
		}
		if err := store.Close(); err != nil {
			return err
		}
	}
	for _, one := range final {
		delete(open, one)
		s.countDeadLetter(f, r, one)
	}
	for one := range open {
		s.countDeadLetter(f, r, one)
	}
	return nil
}

func (s *testbed) countDeadLetter(f *deliveries, r *Report, p failedRow) {
	r.Dead++
	i := slices.IndexFunc(s.round.Pipeline.Sinks, func(sink Sink) bool { return sink.Name == p.sink })
	if i < 0 {
		f.dead.add(p.event)
	} else {
		f.sinks[i].add(p.event)
	}
}

func (s *testbed) eventNumber(event []byte) (uint64, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(event, &fields); err != nil {
		return 0, fmt.Errorf("parse a dead letter: %w", err)
	}
	var n uint64
	if err := json.Unmarshal(fields[s.round.Pipeline.Field], &n); err != nil {
		return 0, fmt.Errorf("parse the number of a dead letter: %w", err)
	}
	return n, nil
}

// compareAll compares the deliveries of every pushed event with the expected ones.
func (s *testbed) compareAll(f *deliveries, r *Report) {
	known := make([]bool, s.producer.next)
	look := func(all []push, must bool) (events uint64) {
		for _, chunk := range all {
			for n := chunk.first; n < chunk.first+chunk.count; n++ {
				known[n] = true
				s.compareEvent(f, r, n, must)
			}
			events += chunk.count
		}
		return events
	}
	r.Events, r.Forgotten = look(s.producer.pushes, true), look(s.producer.forgotten, false)
	for _, c := range append(slices.Clone(f.sinks), f.dead, f.state) {
		for n, times := range c {
			if times > 0 && (n >= len(known) || !known[n]) {
				r.Unknown++
				r.addExample("event %d was never pushed, but was found", n)
			}
		}
	}
}

func (s *testbed) compareEvent(f *deliveries, r *Report, n uint64, must bool) {
	want := s.expected[s.config.Events.sampleIndex(n)]
	dead := uint8(0)
	if want.Dead {
		dead = 1
	}
	s.compareCount(r, n, "dead letters", int(f.dead.at(n)), int(dead), must)
	if f.state != nil {
		s.compareCount(r, n, "changes of the state", int(f.state.at(n)), 1-int(dead), must)
	}
	for i, sink := range s.round.Pipeline.Sinks {
		s.compareCount(r, n, "rows in "+sink.Name, int(f.sinks[i].at(n)), int(want.Rows[i]), must)
	}
}

// compareCount compares one count. Events that Redis lost when it was restored (must is
// false) need not have been delivered.
func (s *testbed) compareCount(r *Report, n uint64, what string, have, want int, must bool) {
	switch {
	case have > want:
		r.Duplicated += uint64(have - want)
	case have < want && must:
		r.Lost += uint64(want - have)
	default:
		return
	}
	r.addExample("event %d has %d %s, not %d\n%s", n, have, what, want, s.eventHistory(n))
}

func (r *Report) addExample(format string, args ...any) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// eventHistory returns the faults injected around the push of an event, for error messages.
func (s *testbed) eventHistory(n uint64) string {
	const around = 8
	chunk, err := s.producer.findPush(n)
	if err != nil {
		return "  " + err.Error()
	}
	lines := []string{fmt.Sprintf("  %s pushed to %s, with %d others", chunk.at.UTC().Format("15:04:05.000"), chunk.key, chunk.count-1)}
	after := slices.IndexFunc(s.events, func(h historyEntry) bool { return h.at.After(chunk.at) })
	if after < 0 {
		after = len(s.events)
	}
	for _, h := range s.events[max(0, after-2):min(len(s.events), after+around)] {
		lines = append(lines, "  "+h.String())
	}
	return strings.Join(lines, "\n")
}
