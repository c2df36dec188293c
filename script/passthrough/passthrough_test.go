package passthrough

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

func load(t *testing.T, columns ...event.Column) script.Script {
	t.Helper()
	s, err := Language().Load(context.Background(), script.Code{}, script.Options{Sinks: []script.Sink{{Columns: columns}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func batch(docs ...string) *event.Batch {
	b := &event.Batch{Partition: "p", Range: event.Range{First: 10, Count: uint64(len(docs))}}
	for _, doc := range docs {
		b.Append([]byte(doc))
	}
	return b
}

func TestPassesBytesAndSetsTheRestAside(t *testing.T) {
	s := load(t, event.Column{Name: "n", Path: []string{"n"}, Type: event.Int64})
	res := event.Result{Outputs: make([]event.Output, 1)}
	for range 2 { // the second run uses the first one's memory
		in := batch(`{ "n": 1,"x":1.0 }`, `no`, `{"n":"2"}`, `[3]`, `{"n":null}`)
		if err := s.Run(context.Background(), in, &res); err != nil {
			t.Fatal(err)
		}
		out := &res.Outputs[0]
		if got := string(out.Data); got != `{ "n": 1,"x":1.0 }{"n":null}` {
			t.Errorf("passed on %s", got)
		}
		if !slices.Equal(out.From, []uint32{0, 4}) || out.Range.First != 10 || out.Range.Count != 5 {
			t.Errorf("rows come from %v of %v", out.From, out.Range)
		}
		n := &out.Columns.Vectors[0]
		if !slices.Equal(n.Ints, []int64{1, 0}) || !slices.Equal(n.Null, []uint8{0, 1}) {
			t.Errorf("column n is %v, null %v", n.Ints, n.Null)
		}
		var stages []string
		for _, d := range res.Dead {
			stages = append(stages, d.Stage)
		}
		if !slices.Equal(stages, []string{"parse", "column", "parse"}) || res.Dead[1].Position != 12 {
			t.Errorf("dead are %v", res.Dead)
		}
		if res.Ran != 5 || res.Dropped != 0 {
			t.Errorf("ran %d, dropped %d", res.Ran, res.Dropped)
		}
	}
}

// TestSinks: each sink gets what fits its columns, one that is Routed nothing, and
// what is no object is dead once.
func TestSinks(t *testing.T) {
	s, err := Language().Load(context.Background(), script.Code{}, script.Options{Sinks: []script.Sink{
		{Name: "none", Routed: true}, {Name: "all"}, {Name: "numbers", Columns: []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	res := event.Result{Outputs: make([]event.Output, 3)}
	if err := s.Run(context.Background(), batch(`{"n":1}`, `{"n":"x"}`, `no`), &res); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range res.Outputs {
		got = append(got, string(res.Outputs[i].Data))
		if r := res.Outputs[i].Range; r.First != 10 || r.Count != 3 {
			t.Errorf("output %d settles %v", i, r)
		}
	}
	for _, d := range res.Dead {
		got = append(got, fmt.Sprintf("%d %s %s", d.Position, d.Stage, d.Sink))
	}
	if want := []string{``, `{"n":1}{"n":"x"}`, `{"n":1}`, "11 column numbers", "12 parse "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
