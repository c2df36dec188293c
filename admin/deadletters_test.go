package admin

import (
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
)

// TestRowOfDeadLetter shows the row that a dead letter keeps, whichever form it has.
func TestRowOfDeadLetter(t *testing.T) {
	stored := func(out event.Output) []byte {
		entry := outbox.Entry{Result: event.Result{Outputs: []event.Output{out}}}
		row, err := entry.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	columns := &event.Columns{
		Rows: 1, Spec: []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}, {Name: "s", Path: []string{"s"}, Type: event.String}},
		Vectors: []event.Vector{{Null: []uint8{0}, Ints: []int64{7}}, {Null: []uint8{1}, Ends: []uint32{0}}},
	}
	for name, test := range map[string]struct {
		dead event.DeadLetter
		want string
	}{
		"an event":             {},
		"a document":           {dead: event.DeadLetter{Document: []byte(`{"n":1}`)}, want: `{"n":1}`},
		"a row of documents":   {dead: event.DeadLetter{Row: stored(event.Output{Data: []byte(`{"n":2}`), Ends: []uint32{7}, From: []uint32{0}})}, want: `{"n":2}`},
		"a row of columns":     {dead: event.DeadLetter{Row: stored(event.Output{Ends: []uint32{0}, From: []uint32{0}, Columns: columns})}, want: `{"n":7,"s":null}`},
		"a row that is no row": {dead: event.DeadLetter{Row: []byte("x")}},
	} {
		if got := NewDeadLetter(deadletter.Letter{DeadLetter: test.dead}).Row; got != test.want {
			t.Errorf("%s is shown with the row %q, want %q", name, got, test.want)
		}
	}
}
