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

// A Report is what became of the events of a round.
type Report struct {
	Events     uint64 // that Redis took and kept
	Forgotten  uint64 // that it was made to forget
	Rows, Dead uint64 // read back
	Lost       uint64 // rows and dead letters that are nowhere
	Duplicated uint64 // those that are there once too often
	Unknown    uint64 // those of events that never were
	Examples   []string
}

// String says it in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d events, %d forgotten by Redis, %d rows, %d dead letters: %d lost, %d duplicated",
		r.Events, r.Forgotten, r.Rows, r.Dead, r.Lost, r.Duplicated)
}

// Err is nil when every event landed once, and else tells of some that did not.
func (r *Report) Err() error {
	if r.Lost+r.Duplicated+r.Unknown == 0 {
		return nil
	}
	return fmt.Errorf("%d lost, %d duplicated, %d that were never pushed\n%s",
		r.Lost, r.Duplicated, r.Unknown, strings.Join(r.Examples, "\n"))
}

const examplesMax = 10

// A count is how often each event was found, by its number.
type count []uint8

func (c *count) add(n uint64) {
	if n >= uint64(len(*c)) {
		*c = append(*c, make([]uint8, int(n)+1-len(*c))...)
	}
	if (*c)[n] < 255 {
		(*c)[n]++
	}
}

func (c count) at(n uint64) uint8 {
	if n < uint64(len(c)) {
		return c[n]
	}
	return 0
}

// found is what was read back.
type found struct {
	sinks []count // rows of each sink, and dead letters of that sink
	dead  count   // events that failed as a whole
}

// account reads back where every event has ended.
func (s *stage) account(ctx context.Context) (Report, error) {
	f, r := &found{sinks: make([]count, len(s.round.Pipeline.Sinks))}, Report{}
	for i, sink := range s.round.Pipeline.Sinks {
		note := func(n uint64) {
			f.sinks[i].add(n)
			r.Rows++
		}
		if err := s.stored(ctx, i, sink, note); err != nil {
			return r, err
		}
	}
	if err := s.letters(f, &r); err != nil {
		return r, err
	}
	s.compare(f, &r)
	return r, nil
}

func (s *stage) stored(ctx context.Context, i int, sink Sink, each func(uint64)) error {
	if d := s.database(sink.Kind); d != nil {
		return d.numbers(ctx, table(i), sink.Column, each)
	}
	return s.config.Stored(ctx, s.workers[0].data(), table(i), sink.Column, each)
}

// A place is where a dead letter belongs.
type place struct {
	partition string
	position  uint64
	sink      string
	number    uint32
}

// A part is what a dead letter is of.
type part struct {
	event  uint64
	sink   string
	number uint32
}

// letters reads the dead letters of all workers. One that two workers have, who
// took a partition from each other, counts once. So does one that is not settled,
// because its worker died, if the event failed again at another place.
func (s *stage) letters(f *found, r *Report) error {
	settled, open := make(map[place]part), make(map[part]bool)
	for _, w := range s.workers {
		store, err := deadletter.Open(w.data())
		if err != nil {
			return err
		}
		for letter, err := range store.List(deadletter.Filter{}) {
			if err != nil {
				return errors.Join(err, store.Close())
			}
			n, err := s.numberOf(letter.Original)
			if err != nil {
				return errors.Join(err, store.Close())
			}
			one := part{n, letter.Sink, letter.Number}
			if letter.Uncommitted {
				open[one] = true
			} else {
				settled[place{letter.Partition, letter.Position, letter.Sink, letter.Number}] = one
			}
		}
		if err := store.Close(); err != nil {
			return err
		}
	}
	for _, one := range settled {
		delete(open, one)
		s.letter(f, r, one)
	}
	for one := range open {
		s.letter(f, r, one)
	}
	return nil
}

func (s *stage) letter(f *found, r *Report, p part) {
	r.Dead++
	i := slices.IndexFunc(s.round.Pipeline.Sinks, func(sink Sink) bool { return sink.Name == p.sink })
	if i < 0 {
		f.dead.add(p.event)
	} else {
		f.sinks[i].add(p.event)
	}
}

func (s *stage) numberOf(event []byte) (uint64, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(event, &fields); err != nil {
		return 0, fmt.Errorf("a dead letter: %w", err)
	}
	var n uint64
	if err := json.Unmarshal(fields[s.round.Pipeline.Field], &n); err != nil {
		return 0, fmt.Errorf("the number of a dead letter: %w", err)
	}
	return n, nil
}

// compare holds what was found against what must be.
func (s *stage) compare(f *found, r *Report) {
	known := make([]bool, s.producer.next)
	look := func(all []push, must bool) (events uint64) {
		for _, chunk := range all {
			for n := chunk.first; n < chunk.first+chunk.count; n++ {
				known[n] = true
				s.compareOne(f, r, n, must)
			}
			events += chunk.count
		}
		return events
	}
	r.Events, r.Forgotten = look(s.producer.pushes, true), look(s.producer.forgotten, false)
	for _, c := range append(slices.Clone(f.sinks), f.dead) {
		for n, times := range c {
			if times > 0 && (n >= len(known) || !known[n]) {
				r.Unknown++
				r.example("event %d was never pushed, and is there", n)
			}
		}
	}
}

func (s *stage) compareOne(f *found, r *Report, n uint64, must bool) {
	want := s.outcomes[s.config.Events.kind(n)]
	dead := uint8(0)
	if want.Dead {
		dead = 1
	}
	s.hold(r, n, "dead letters", int(f.dead.at(n)), int(dead), must)
	for i, sink := range s.round.Pipeline.Sinks {
		s.hold(r, n, "rows in "+sink.Name, int(f.sinks[i].at(n)), int(want.Rows[i]), must)
	}
}

// hold compares one figure. What Redis has forgotten need not be there.
func (s *stage) hold(r *Report, n uint64, what string, have, want int, must bool) {
	switch {
	case have > want:
		r.Duplicated += uint64(have - want)
	case have < want && must:
		r.Lost += uint64(want - have)
	default:
		return
	}
	r.example("event %d has %d %s, not %d\n%s", n, have, what, want, s.story(n))
}

func (r *Report) example(format string, args ...any) {
	if len(r.Examples) < examplesMax {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// story tells what happened around the push of an event.
func (s *stage) story(n uint64) string {
	const around = 8
	chunk, err := s.producer.about(n)
	if err != nil {
		return "  " + err.Error()
	}
	lines := []string{fmt.Sprintf("  %s pushed to %s, with %d others", chunk.at.UTC().Format("15:04:05.000"), chunk.key, chunk.count-1)}
	after := slices.IndexFunc(s.happened, func(h happening) bool { return h.at.After(chunk.at) })
	if after < 0 {
		after = len(s.happened)
	}
	for _, h := range s.happened[max(0, after-2):min(len(s.happened), after+around)] {
		lines = append(lines, "  "+h.String())
	}
	return strings.Join(lines, "\n")
}
