package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// requestRetries stores letters for the first events of partition a, one for each
// request, and requests their retry.
func requestRetries(t *testing.T, r harness, requests ...deadletter.Request) {
	t.Helper()
	var dead []event.DeadLetter
	for i, request := range requests {
		dead = append(dead, event.DeadLetter{
			Position: uint64(i), Sink: request.Sink, Number: request.Number, Stage: "script", Error: "first failure",
			Original: fmt.Appendf(nil, "a/%d", i),
		})
	}
	all := event.Range{Count: uint64(len(dead))}
	if err := errors.Join(r.store.Replace("test", "a", all, dead), r.store.MarkCommitted("test", "a", all)); err != nil {
		t.Fatal(err)
	}
	if got, err := r.store.Retry(deadletter.Filter{}); got.Queued != len(dead) || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestRetries retries events that miss one row in one sink, or all rows.
func TestRetries(t *testing.T) {
	rows := func(kinds ...string) func(doc string) ([]string, error) {
		return func(doc string) (all []string, err error) {
			for n, kind := range kinds {
				all = append(all, fmt.Sprintf("%s %s%d", doc, kind, n))
			}
			return all, nil
		}
	}
	fails := func(string) ([]string, error) { return nil, errors.New("still not") }
	for name, test := range map[string]struct {
		request deadletter.Request
		outcome func(doc string) ([]string, error)
		rows    [2][]string // by sink
		dead    []string
		dropped uint64
	}{
		"all":                       {request: deadletter.Request{}, outcome: rows("r", "r"), rows: [2][]string{{"a/0 r0", "a/0 r1"}, {"a/0 r0", "a/0 r1"}}},
		"one row of the first":      {request: deadletter.Request{Sink: "0", Number: 1}, outcome: rows("r", "r", "r"), rows: [2][]string{{"a/0 r1"}, nil}},
		"one row of the second":     {request: deadletter.Request{Sink: "1"}, outcome: rows("r", "r", "r"), rows: [2][]string{nil, {"a/0 r0"}}},
		"a row that is refused":     {request: deadletter.Request{Sink: "1", Number: 2}, outcome: rows("r", "r", "bad"), dead: []string{"1 2 sink: bad row"}},
		"others would be refused":   {request: deadletter.Request{Sink: "1", Number: 1}, outcome: rows("bad", "r", "bad"), rows: [2][]string{nil, {"a/0 r1"}}},
		"a row that comes no more":  {request: deadletter.Request{Sink: "1", Number: 5}, outcome: rows("r"), dropped: 1},
		"an event that is dropped":  {request: deadletter.Request{Sink: "1"}, outcome: rows(), dropped: 1},
		"an event that fails again": {request: deadletter.Request{Sink: "1", Number: 3}, outcome: fails, dead: []string{"1 3 script: still not"}},
		"all of one that fails":     {request: deadletter.Request{}, outcome: fails, dead: []string{" 0 script: still not"}},
		"a sink that is there no more": {request: deadletter.Request{Sink: "x", Number: 1}, outcome: rows("r"),
			dead: []string{`x 1 sink: unknown sink "x"; the pipeline has 0, 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			// A second event is retried as a whole in the same batch.
			main := func(position uint64, doc string) ([]string, error) {
				if position == 1 {
					return []string{doc}, nil
				}
				return test.outcome(doc)
			}
			sinks := []*memorySink{newMemorySink(), newMemorySink()}
			r := severalSinks(t, newMemorySource(), testScript{main: main}, sinks...)
			requestRetries(t, r, test.request, deadletter.Request{})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, to := range sinks {
				expectSame(t, fmt.Sprint("rows of sink ", i), append(slices.Clone(test.rows[i]), "a/1"), to.allRows())
			}
			var dead []string
			for _, l := range r.deadLetters(t) {
				dead = append(dead, fmt.Sprintf("%s %d %s: %s", l.Sink, l.Number, l.Stage, l.Error))
			}
			if !slices.Equal(dead, test.dead) {
				t.Errorf("dead %q, want %q", dead, test.dead)
			}
			if s := r.Stats(); s.Dropped != test.dropped {
				t.Errorf("%d dropped, want %d", s.Dropped, test.dropped)
			}
		})
	}
}

// A limit that cuts a batch of retries does not shift the requests.
func TestLimitCutsRetries(t *testing.T) {
	main := func(_ uint64, doc string) ([]string, error) {
		return []string{doc + " r0", doc + " r1", doc + " r2"}, nil
	}
	to := newMemorySink()
	half := testScript{main: main, limit: func(n int) int { return (n + 1) / 2 }}
	r := newHarness(t, newMemorySource(), half, to)
	var requests []deadletter.Request
	var want []string
	for i := range 4 {
		requests = append(requests, deadletter.Request{Sink: "table", Number: uint32(i % 3)})
		want = append(want, fmt.Sprintf("a/%d r%d", i, i%3))
	}
	requestRetries(t, r, requests...)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectSame(t, "rows", want, to.allRows())
	if n, s := len(r.deadLetters(t)), r.Stats(); n > 0 || s.Read != 4 || len(s.Started) > 0 {
		t.Errorf("%d dead letters are left, %d events were read, started at %v", n, s.Read, s.Started)
	}
}

// A retried row that is rejected again after a crash, when its stored output is
// replayed, stays the letter of the same row.
func TestReplayedRetryKeepsItsRow(t *testing.T) {
	main := func(_ uint64, doc string) ([]string, error) { return []string{doc, doc, "bad " + doc}, nil }
	first, second := newMemorySink(), newMemorySink()
	r := severalSinks(t, newMemorySource(), testScript{main: main}, first, second)
	requestRetries(t, r, deadletter.Request{Sink: "1", Number: 2})
	stopBetween(t, r, second)
	r.restart(func(c *Config) {
		c.Script = testScript{main: func(uint64, string) ([]string, error) {
			t.Error("the script ran again")
			return nil, nil
		}}
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead := r.deadLetters(t)
	if len(dead) != 1 || dead[0].Sink != "1" || dead[0].Number != 2 || dead[0].Retried != 1 || dead[0].Uncommitted {
		t.Errorf("dead letters %+v", dead)
	}
	if n := len(first.allRows()) + len(second.allRows()); n > 0 || r.Stats().Replayed != 1 {
		t.Errorf("%d rows written, %d events replayed", n, r.Stats().Replayed)
	}
}

// Rows that do not fit a column are removed from the output before the requested
// rows are selected. They keep their numbers.
func TestSelectRequestedCountsMisfits(t *testing.T) {
	d := &delivery{
		session:   &session{p: &Pipeline{config: Config{Sinks: []Sink{{Name: "0"}}}}},
		batch:     &event.Batch{Range: event.Range{First: 7, Count: 1}},
		requested: []deadletter.Request{{Sink: "0", Number: 2}},
		result: &event.Result{
			Ran:     1,
			Outputs: []event.Output{{Range: event.Range{First: 7, Count: 1}, Data: []byte("13"), Ends: []uint32{1, 2}, From: []uint32{0, 0}}},
			Dead: []event.DeadLetter{
				{Position: 7, Sink: "0", Number: 0, Stage: "column"},
				{Position: 7, Sink: "0", Number: 3, Stage: "column"},
			},
		},
	}
	d.selectRequested() // rows 1 and 2 are left, of 4
	if got := string(d.result.Outputs[0].Data); got != "3" || len(d.result.Dead) != 0 || d.result.Dropped != 0 {
		t.Errorf("%q is left, with %v dead and %d dropped", got, d.result.Dead, d.result.Dropped)
	}
}

// Rows that a sink rejects one after the other keep their numbers too.
func TestRowNumberCountsDead(t *testing.T) {
	d := &delivery{
		session: &session{p: &Pipeline{config: Config{Sinks: []Sink{{Name: "table"}}}}},
		result: &event.Result{
			Outputs: []event.Output{{Range: event.Range{First: 100, Count: 3}, Ends: make([]uint32, 5), From: []uint32{0, 0, 0, 2, 2}}},
			Dead: []event.DeadLetter{
				{Position: 100, Sink: "table", Number: 1}, {Position: 100, Sink: "other", Number: 0}, {Position: 101, Sink: "table"},
			},
		},
	}
	for row, want := range []uint32{0, 2, 3, 0, 1} {
		if got := d.rowNumber(0, row); got != want {
			t.Errorf("row %d has number %d, want %d", row, got, want)
		}
	}
}
