package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// again is a source of events of which only parts are wanted.
type again struct {
	*queue
	only []event.Part
}

func (a again) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	r, err := a.queue.Open(ctx, partition, done)
	return againReader{r, a.only}, err
}

type againReader struct {
	source.Reader
	only []event.Part
}

func (r againReader) Read(ctx context.Context, b *event.Batch) error {
	err := r.Reader.Read(ctx, b)
	b.Only = append(b.Only, r.only[b.Range.First:b.Range.End()]...)
	return err
}

// TestOnly tries events again of which one row is missing in one sink, or all.
func TestOnly(t *testing.T) {
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
		only    event.Part
		fate    func(doc string) ([]string, error)
		rows    [2][]string // by sink
		dead    []string
		dropped uint64
	}{
		"all":                       {only: event.Part{}, fate: rows("r", "r"), rows: [2][]string{{"a/0 r0", "a/0 r1"}, {"a/0 r0", "a/0 r1"}}},
		"one row of the first":      {only: event.Part{Sink: "0", Number: 1}, fate: rows("r", "r", "r"), rows: [2][]string{{"a/0 r1"}, nil}},
		"one row of the second":     {only: event.Part{Sink: "1"}, fate: rows("r", "r", "r"), rows: [2][]string{nil, {"a/0 r0"}}},
		"a row that is refused":     {only: event.Part{Sink: "1", Number: 2}, fate: rows("r", "r", "bad"), dead: []string{"1 2 sink: bad row"}},
		"others would be refused":   {only: event.Part{Sink: "1", Number: 1}, fate: rows("bad", "r", "bad"), rows: [2][]string{nil, {"a/0 r1"}}},
		"a row that comes no more":  {only: event.Part{Sink: "1", Number: 5}, fate: rows("r"), dropped: 1},
		"an event that is dropped":  {only: event.Part{Sink: "1"}, fate: rows(), dropped: 1},
		"an event that fails again": {only: event.Part{Sink: "1", Number: 3}, fate: fails, dead: []string{"1 3 script: still not"}},
		"all of one that fails":     {only: event.Part{}, fate: fails, dead: []string{" 0 script: still not"}},
		"a sink that is there no more": {only: event.Part{Sink: "x", Number: 1}, fate: rows("r"),
			dead: []string{`x 1 sink: no sink called "x"; there is 0, 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			// The second event is tried again as a whole beside each of them.
			src := again{newQueue(newShelf("a", 2)), []event.Part{test.only, {}}}
			main := func(position uint64, doc string) ([]string, error) {
				if position == 1 {
					return []string{doc}, nil
				}
				return test.fate(doc)
			}
			tables := []*table{newTable(), newTable()}
			r := severalSinks(t, src, program{main: main}, tables...)
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, to := range tables {
				same(t, fmt.Sprint("rows of sink ", i), append(slices.Clone(test.rows[i]), "a/1"), to.all())
			}
			var dead []string
			for _, l := range r.dead(t) {
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

// Rows that do not fit a column are gone from the output before the parts are
// chosen, and count all the same.
func TestOnlyCountsMisfits(t *testing.T) {
	s := &settling{
		t:     &partition{p: &Pipeline{config: Config{Sinks: []Sink{{Name: "0"}}}}},
		batch: &event.Batch{Range: event.Range{First: 7, Count: 1}, Only: []event.Part{{Sink: "0", Number: 2}}},
		res: &event.Result{
			Ran:     1,
			Outputs: []event.Output{{Range: event.Range{First: 7, Count: 1}, Data: []byte("13"), Ends: []uint32{1, 2}, From: []uint32{0, 0}}},
			Dead: []event.Dead{
				{Position: 7, Sink: "0", Number: 0, Stage: "column"},
				{Position: 7, Sink: "0", Number: 3, Stage: "column"},
			},
		},
	}
	s.heed() // rows 1 and 2 are left, of 4
	if got := string(s.res.Outputs[0].Data); got != "3" || len(s.res.Dead) != 0 || s.res.Dropped != 0 {
		t.Errorf("%q is left, with %v dead and %d dropped", got, s.res.Dead, s.res.Dropped)
	}
}
