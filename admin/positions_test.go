package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// A rememberingSink remembers positions, and keeps leases if it has a lease.
type rememberingSink struct {
	sink.Sink
	ranges map[string]event.Ranges
	lease  *lease
	fails  error
}

func remembering(ranges map[string]event.Ranges) *rememberingSink {
	return &rememberingSink{ranges: ranges}
}

func (s *rememberingSink) Traits() sink.Traits {
	traits := sink.Traits{Positions: s}
	if s.lease != nil {
		traits.Leases = s.lease
	}
	return traits
}

func (s *rememberingSink) Positions(context.Context) (map[string]event.Ranges, error) {
	return s.ranges, s.fails
}

func (s *rememberingSink) SetPosition(_ context.Context, partition string, next uint64) error {
	if next == 13 {
		return errors.New("cannot set")
	}
	if s.lease != nil && s.lease.holder != "perigee position" && s.lease.holder != "" {
		return errors.New("set while another worker has the lease")
	}
	s.ranges = maps.Clone(s.ranges)
	s.ranges[partition] = event.Ranges{{Count: next}}
	return nil
}

// A lease is that of the only partition.
type lease struct {
	holder   string
	released int
	fails    error
	asked    []string // names
}

func (l *lease) AcquireLeases(_ context.Context, partitions []string, worker string, d time.Duration) ([]string, error) {
	if d < time.Second || len(partitions) != 1 {
		return nil, fmt.Errorf("a lease of %v for the partitions %q", d, partitions)
	}
	l.asked = append(l.asked, partitions...)
	if l.holder == "" && l.fails == nil {
		l.holder = worker
	}
	return []string{l.holder}, l.fails
}

func (l *lease) ReleaseLeases(_ context.Context, _ []string, worker string) error {
	if l.holder == worker {
		l.holder = ""
	}
	l.released++
	return nil
}

func (l *lease) Heartbeat(context.Context, string, time.Duration) (int, error) { return 1, nil }

// A forgetfulSink remembers nothing.
type forgetfulSink struct{ sink.Sink }

func (forgetfulSink) Traits() sink.Traits { return sink.Traits{} }

// A boundedSource says what it has.
type boundedSource struct {
	source.Source
	bounds map[string]event.Range
	err    error
}

func (s boundedSource) Traits() source.Traits {
	return source.Traits{Bounds: func(ctx context.Context) (map[string]event.Range, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			return nil, errors.New("waits without bound")
		}
		return s.bounds, s.err
	}}
}

// A silentSource cannot tell what it has.
type silentSource struct{ source.Source }

func (silentSource) Traits() source.Traits { return source.Traits{} }

// brief is a position on one line.
func (p Position) brief() string {
	lag := "-"
	if p.Lag != nil {
		lag = fmt.Sprint(*p.Lag)
	}
	return fmt.Sprintf("%s %s %s next %d of %s, %d events, source %s lag %s", p.Pipeline, p.Partition, p.Sink, p.Next, p.Committed, p.Events, p.Source, lag)
}

func TestPositions(t *testing.T) {
	table := remembering(map[string]event.Ranges{
		"b":                      {{First: 0, Count: 10}, {First: 15, Count: 5}},
		"a":                      {{First: 3, Count: 4}},
		"none":                   nil,
		"ahead":                  {{First: 0, Count: 50}},
		"gone":                   {{First: 0, Count: 2}},
		"retry@0123456789abcdef": {{First: 0, Count: 1}},
	})
	bounds := map[string]event.Range{"a": {First: 5, Count: 10}, "b": {First: 0, Count: 30}, "ahead": {First: 0, Count: 40}, "gone": {First: 10, Count: 5}}
	lines := Pipeline{Name: "lines", Source: boundedSource{bounds: bounds}, Sinks: []Sink{{"print", forgetfulSink{}}, {"table", table}}}
	mail := Pipeline{Name: "mail", Source: silentSource{}, Sinks: []Sink{{"first", remembering(map[string]event.Ranges{"x": {{First: 0, Count: 1}}})}, {"second", remembering(nil)}}}
	broken := Pipeline{Name: "unreachable", Source: boundedSource{err: errors.New("away")}, Sinks: []Sink{{"table", remembering(map[string]event.Ranges{"x": {{First: 0, Count: 1}}})}}}
	bare := Pipeline{Name: "bare", Source: boundedSource{err: errors.New("nobody may ask")}, Sinks: []Sink{{"print", forgetfulSink{}}}}
	a := open(t, t.TempDir(), lines, mail, broken, bare)

	ofLines := []string{
		"lines a table next 7 of [3,7), 4 events, source [5,15) lag 8",
		"lines ahead table next 50 of [0,50), 50 events, source [0,40) lag 0",
		"lines b table next 10 of [0,10) [15,20), 15 events, source [0,30) lag 10",
		"lines gone table next 2 of [0,2), 2 events, source [10,15) lag 5",
	}
	retries := "lines retry@0123456789abcdef table next 1 of [0,1), 1 events, source  lag -"
	ofOthers := []string{"mail x first next 1 of [0,1), 1 events, source  lag -", "unreachable x table next 1 of [0,1), 1 events, source away lag -"}
	for name, test := range map[string]struct {
		filter PositionFilter
		want   []string
	}{
		"all":            {PositionFilter{}, append(ofLines[:4:4], ofOthers...)},
		"of a pipeline":  {PositionFilter{Pipeline: "lines"}, ofLines},
		"of another one": {PositionFilter{Pipeline: "mail"}, ofOthers[:1]},
		"with retries":   {PositionFilter{Pipeline: "lines", Retries: true}, append(ofLines[:4:4], retries)},
		"none":           {PositionFilter{Pipeline: "bare"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := a.Positions(t.Context(), test.filter)
			if err != nil || all == nil {
				t.Fatalf("%v, %v", all, err)
			}
			got := []string{}
			for _, p := range all {
				got = append(got, p.brief())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	table.fails = errors.New("connection refused")
	_, err := a.Positions(t.Context(), PositionFilter{})
	expectError(t, "a sink that is away", err, "pipeline lines, sink table: connection refused", "")
	_, err = a.SetPosition(t.Context(), Move{Pipeline: "lines"})
	expectError(t, "a move without the sink", err, "pipeline lines, sink table: connection refused", "")
}

// String is a result on one line.
func (r *MoveResult) String() string {
	if r == nil {
		return "nothing"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s continues from %d", r.Pipeline, r.Partition, r.Next)
	for _, s := range r.Sinks {
		fmt.Fprintf(&b, "; %s: %d again %s, %d skipped %s", s.Sink, s.EventsAgain, s.ReadAgain, s.EventsSkipped, s.Skipped)
	}
	return b.String()
}

func count(n uint64) *uint64 { return &n }

func TestSetPosition(t *testing.T) {
	first := map[string]event.Ranges{"orders/1": {{First: 2, Count: 10}, {First: 15, Count: 5}}, "orders/2": {{First: 0, Count: 8}}, "retry@0123456789abcdef": {{First: 0, Count: 1}}}
	second := map[string]event.Ranges{"orders/1": {{First: 2, Count: 4}}}
	for name, test := range map[string]struct {
		move       Move
		want       string
		text, hint string // of the error
		next       string // in both sinks afterwards
	}{
		"back": {
			Move{Partition: "orders/1", Next: 5}, "lines orders/1 continues from 5; first: 12 again [5,12) [15,20), 0 skipped ; second: 1 again [5,6), 0 skipped ", "", "", "5 5"},
		"into a range, forward in the other": {
			Move{Partition: "orders/1", Next: 16}, "lines orders/1 continues from 16; first: 4 again [16,20), 3 skipped [12,15); second: 0 again , 10 skipped [6,16)", "", "", "16 16"},
		"to the beginning": {
			Move{Partition: "orders/1", Next: 0}, "lines orders/1 continues from 0; first: 15 again [2,12) [15,20), 0 skipped ; second: 4 again [2,6), 0 skipped ", "", "", "0 0"},
		"to the end of a range": {
			Move{Partition: "orders/1", Next: 20}, "lines orders/1 continues from 20; first: 0 again , 3 skipped [12,15); second: 0 again , 14 skipped [6,20)", "", "", "20 20"},
		"one sink": {
			Move{Partition: "orders/1", Next: 5, Sink: "second"}, "lines orders/1 continues from 5; second: 1 again [5,6), 0 skipped ", "", "", "12 5"},
		"tried": {
			Move{Partition: "orders/1", Next: 5, DryRun: true}, "lines orders/1 continues from 5; first: 12 again [5,12) [15,20), 0 skipped ; second: 1 again [5,6), 0 skipped ", "", "", "12 6"},
		"rewound from where the last sink is": {
			Move{Partition: "orders/1", Rewind: count(2)}, "lines orders/1 continues from 4; first: 13 again [4,12) [15,20), 0 skipped ; second: 2 again [4,6), 0 skipped ", "", "", "4 4"},
		"rewound to the beginning": {
			Move{Partition: "orders/1", Rewind: count(6)}, "lines orders/1 continues from 0; first: 15 again [2,12) [15,20), 0 skipped ; second: 4 again [2,6), 0 skipped ", "", "", "0 0"},
		"rewound too far": {
			Move{Partition: "orders/1", Rewind: count(7)}, "", "cannot rewind 7 events: only 6 precede this position", "", "12 6"},
		"a partition by its first characters": {
			Move{Partition: "orders/2", Next: 3, Sink: "first"}, "lines orders/2 continues from 3; first: 5 again [3,8), 0 skipped ", "", "", "12 6"},
		"a partition that only one sink has": {
			Move{Partition: "orders/2", Next: 3}, "lines orders/2 continues from 3; first: 5 again [3,8), 0 skipped ; second: 0 again , 0 skipped ", "", "", "12 6"},
		"several partitions": {
			Move{Partition: "orders", Next: 3}, "", "pipeline lines has 2 matching partitions", "--partition: orders/1, orders/2", "12 6"},
		"no name of several": {
			Move{Next: 3}, "", "pipeline lines has 2 matching partitions", "--partition: orders/1, orders/2", "12 6"},
		"an unknown partition": {
			Move{Partition: "x", Next: 3}, "", `no sink of pipeline lines has a position of partition "x"`, "perigee position show lists the partitions", "12 6"},
		"an unknown partition, rewound": {
			Move{Partition: "x", Rewind: count(1)}, "", `no sink of pipeline lines has a position of partition "x"`, "perigee position show lists the partitions", "12 6"},
		"a batch of retries": {
			Move{Partition: "retry@0", Next: 1, Sink: "first"}, "lines retry@0123456789abcdef continues from 1; first: 0 again , 0 skipped ", "", "", "12 6"},
		"an unknown sink": {
			Move{Partition: "orders/1", Sink: "third"}, "", `pipeline lines has no sink "third" that stores positions`, "perigee position show lists the sinks", "12 6"},
		"a sink without positions": {
			Move{Partition: "orders/1", Sink: "print"}, "", `pipeline lines has no sink "print" that stores positions`, "perigee position show lists the sinks", "12 6"},
		"a sink that fails": {
			Move{Partition: "orders/1", Next: 13}, "", "sink first: cannot set", "", "12 6"},
	} {
		t.Run(name, func(t *testing.T) {
			a1, a2 := remembering(first), remembering(second)
			a := open(t, t.TempDir(), Pipeline{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"print", forgetfulSink{}}, {"first", a1}, {"second", a2}}})
			test.move.Pipeline = "lines"
			result, err := a.SetPosition(t.Context(), test.move)
			if test.text != "" {
				expectError(t, name, err, test.text, test.hint)
			} else if err != nil || result.String() != test.want {
				t.Errorf("got %v, %v\nwant %s", result, err, test.want)
			}
			if got := fmt.Sprint(a1.ranges["orders/1"][0].End(), a2.ranges["orders/1"][0].End()); got != test.next {
				t.Errorf("the sinks continue from %s, want %s", got, test.next)
			}
		})
	}
}

// TestOnlyPartition: the name of the only partition can be left out.
func TestOnlyPartition(t *testing.T) {
	table := remembering(map[string]event.Ranges{"a": {{First: 0, Count: 10}}, "retry@0123456789abcdef": {{First: 0, Count: 1}}})
	a := open(t, t.TempDir(), Pipeline{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"table", table}}})
	result, err := a.SetPosition(t.Context(), Move{Pipeline: "lines", Next: 4})
	if err != nil || result.Partition != "a" || table.ranges["a"].Next(0) != 4 {
		t.Errorf("%v, %v", result, err)
	}
}

// TestMoveTakesTheLease: no other worker can have the partition while it is moved.
func TestMoveTakesTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		lease lease
		force bool
		text  string
		moves bool
		left  lease
	}{
		"free":              {lease{}, false, "", true, lease{released: 1}},
		"taken":             {lease{holder: "other"}, false, "worker other has the lease of partition a", false, lease{holder: "other", released: 1}},
		"unreachable":       {lease{fails: errors.New("away")}, false, "away", false, lease{fails: errors.New("away"), released: 1}},
		"forced, free":      {lease{}, true, "", true, lease{}},
		"forced, one's own": {lease{holder: "perigee position"}, true, "", true, lease{holder: "perigee position"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := remembering(map[string]event.Ranges{"a": {{First: 0, Count: 10}}})
			table.lease = &test.lease
			a := open(t, t.TempDir(), Pipeline{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"print", forgetfulSink{}}, {"table", table}}})
			_, err := a.SetPosition(t.Context(), Move{Pipeline: "lines", Next: 4, Force: test.force})
			if test.text != "" {
				hint := ""
				if test.lease.fails == nil {
					hint = "perigee pause"
				}
				expectError(t, name, err, test.text, hint)
			} else if err != nil {
				t.Error(err)
			}
			if moved := table.ranges["a"].Next(0) == 4; moved != test.moves {
				t.Errorf("moved: %v", moved)
			}
			if table.lease.holder != test.left.holder || table.lease.released != test.left.released {
				t.Errorf("the lease is %+v, want %+v", *table.lease, test.left)
			}
		})
	}
}

// TestMoveWithState: a move says what happens to the state, and takes the lease of the unit, under
// which workers read the partition.
func TestMoveWithState(t *testing.T) {
	for text, test := range map[string]struct {
		shared bool
		state  string
		lease  string // that is asked for; "" if the move is refused
	}{
		"":                               {false, StateKeep, "a"},
		"events that are read again":     {false, "", ""},
		"unknown --state":                {false, "empyt", ""},
		"would forget the events of all": {true, StateEmpty, ""},
	} {
		table := remembering(map[string]event.Ranges{"a": {{First: 0, Count: 10}}})
		table.lease = &lease{}
		a := open(t, t.TempDir(), Pipeline{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"table", table}}, State: &state.Config{Name: "users", Shared: test.shared}})
		_, err := a.SetPosition(t.Context(), Move{Pipeline: "lines", Next: 4, State: test.state})
		if got := fmt.Sprint(err); text != "" && !strings.Contains(got, text) || text == "" && err != nil {
			t.Errorf("--state %q: the error is %v, want %q", test.state, err, text)
		}
		if got := strings.Join(table.lease.asked, ","); got != test.lease {
			t.Errorf("--state %q: the leases %q were taken, want %q", test.state, got, test.lease)
		}
	}
	table := remembering(map[string]event.Ranges{"a": {{First: 0, Count: 10}}})
	table.lease = &lease{holder: "other"}
	a := open(t, t.TempDir(), Pipeline{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"table", table}}, State: &state.Config{Name: "users", Shared: true}})
	if _, err := a.SetPosition(t.Context(), Move{Pipeline: "lines", Next: 4, State: StateKeep}); err == nil || strings.Join(table.lease.asked, ",") != "all" {
		t.Errorf("the move under the lease of another worker returned %v, and asked for %q, want all", err, table.lease.asked)
	}
}

// TestMoveToNoteIsRefused: a move to a note concerns all sinks, and one partition with events of a unit that
// no worker uses.
func TestMoveToNoteIsRefused(t *testing.T) {
	for text, move := range map[string]Move{
		"goes with the positions of all sinks":    {Partition: "a", Sink: "table"},
		"cannot be set while a worker uses it":    {Partition: "a", Force: true},
		"would forget later events of all":        {Partition: "a"},
		"has no events of the source":             {Partition: pipeline.TimersOf("all")},
		"cannot rewind 11 events: only 10":        {Partition: "a", Rewind: new(uint64(11))},
		"has a position of partition \"unknown\"": {Partition: "unknown"},
	} {
		table := remembering(map[string]event.Ranges{"a": {{Count: 10}}, "b": {{Count: 10}}, pipeline.TimersOf("all"): {{Count: 2}}})
		a := open(t, t.TempDir(), Pipeline{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"table", table}}, State: &state.Config{Name: "users", Shared: true}})
		move.Pipeline, move.State = "lines", "7"
		for _, move.DryRun = range []bool{true, false} {
			if _, err := a.SetPosition(t.Context(), move); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("the move %+v returned %v, want %q", move, err, text)
			}
		}
	}
}

// TestMoveDropsStoredOutputs: outputs of the moved partition that a sink lacks would be
// written although the events are read again.
func TestMoveDropsStoredOutputs(t *testing.T) {
	data := t.TempDir()
	store, err := outbox.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, partition := range []string{"a", "b"} {
		e := &outbox.Entry{Pipeline: "lines", Sinks: []string{"table"}, Batch: event.Batch{Partition: partition, Range: event.Range{Count: 1}, Data: []byte("{}"), Ends: []uint32{2}}}
		e.Result.Outputs = make([]event.Output, 1)
		if err := store.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	table := remembering(map[string]event.Ranges{"a": {{First: 0, Count: 10}}, "b": {{First: 0, Count: 10}}})
	a := open(t, data, Pipeline{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"table", table}}})
	if _, err := a.SetPosition(t.Context(), Move{Pipeline: "lines", Partition: "a", Next: 4}); err != nil {
		t.Fatal(err)
	}
	store, err = outbox.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	names, err := store.Partitions("lines")
	if diff := cmp.Diff([]string{"b"}, names); diff != "" || err != nil {
		t.Error(err, diff)
	}
}
