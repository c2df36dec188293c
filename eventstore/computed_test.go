//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// A testRow is the input of the tests' functions.
type testRow map[string]json.RawMessage

// number returns a field of a row.
func (r testRow) number(name string) (n int64, err error) {
	err = json.Unmarshal(r[name], &n)
	return n, err
}

// computedBy returns a computed column of the table events.
func computedBy(name, version string, compute func(testRow) (any, error)) ComputedColumn {
	return ComputedColumn{Table: "Events", Name: name, Version: func() string { return version },
		Compute: func(_ context.Context, rows *event.Batch, res *event.Result) error {
			res.Reset()
			out := &res.Outputs[0]
			for i := range rows.Len() {
				var row testRow
				err := json.Unmarshal(rows.Doc(i), &row)
				var value any
				if err == nil {
					value, err = compute(row)
				}
				if err != nil {
					res.Dead = append(res.Dead, event.DeadLetter{Position: uint64(i), Stage: "column", Error: name + ": " + err.Error()})
					continue
				}
				text, _ := json.Marshal(value)
				row[name] = text
				text, _ = json.Marshal(row)
				out.Data = append(out.Data, text...)
				out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
			}
			res.Ran = rows.Len()
			return nil
		}}
}

// TestComputedColumns computes columns of appended rows: each column sees those before it,
// and a row without a value is rejected. The same applies to imported files.
func TestComputedColumns(t *testing.T) {
	s := openStore(t, t.TempDir())
	column := func(name string) event.Column {
		return event.Column{Name: name, Path: []string{name}, Type: event.Int64}
	}
	s.SetComputed([]ComputedColumn{
		computedBy("double", "1", func(r testRow) (any, error) { n, err := r.number("id"); return 2 * n, err }),
		computedBy("more", "1", func(r testRow) (any, error) {
			n, err := r.number("double")
			if n == 10 {
				err = errors.New("no luck")
			}
			return n + 1, err
		}),
	})
	table := openTable(t, s, TableConfig{Columns: []event.Column{column("double"), column("more")}})
	p := take(t, table)
	appendDocs(t, p, 0, `{"id":1}`, `{"id":2,"double":7,"other":true}`)
	err := p.Append(context.Background(), outputOf(2, `{"id":3}`, `{"id":5}`, `{"id":4}`))
	rejected, _ := errors.AsType[*RejectedRows](err)
	if want := []catalog.RejectedRow{{Row: 1, Column: "more", Reason: "more: no luck"}}; rejected == nil || !slices.Equal(rejected.Rows, want) {
		t.Errorf("a row without a value: %v", err)
	}
	other, _, err := table.TakeOver(context.Background(), "import of files", "file")
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, other, 0, `{"id":6}`)
	s.SetComputed([]ComputedColumn{computedBy("double", "2", func(testRow) (any, error) { return 0, nil })})
	appendDocs(t, p, 2, `{"id":7,"more":70}`)
	s.SetComputed(nil)
	appendDocs(t, p, 3, `{"id":8}`)
	got := ask(t, s, `SELECT id, "double", more, other FROM events ORDER BY id`)
	if want := "1,2,3,\n2,4,5,true\n6,12,13,\n7,0,70,\n8,,,"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.SetComputed([]ComputedColumn{{Table: "events", Name: "double", Compute: func(context.Context, *event.Batch, *event.Result) error { return fmt.Errorf("out of order") }}})
	if err := p.Append(context.Background(), outputOf(4, `{"id":9}`)); err == nil || err.Error() != "eventstore: compute column double of table events: out of order" {
		t.Errorf("a function that computes nothing: %v", err)
	}
}
