//go:build linux && cgo

package eventservice

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// TestWriteRows writes the rows of a table whose time column has quotes and backslashes in its name.
func TestWriteRows(t *testing.T) {
	data := t.TempDir()
	store, err := eventstore.Open(filepath.Join(data, folderName), eventstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const column = `at "the\n" door'`
	for _, table := range []struct {
		name string
		time string
	}{{"events", column}, {"plain", ""}} {
		docs := []string{`{"id":2,"at \"the\\n\" door'":"2026-11-22T10:00:02Z"}`, `{"id":3,"at \"the\\n\" door'":"2026-11-22T10:00:03Z"}`, `{"id":1,"at \"the\\n\" door'":"2026-11-22T10:00:01Z"}`}
		out := &event.Output{Range: event.Range{Count: uint64(len(docs))}}
		for i, doc := range docs {
			out.Data = append(out.Data, doc...)
			out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
		}
		created, err := store.Table(table.name, eventstore.TableConfig{Time: table.time})
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := created.TakeOver(t.Context(), "pipeline", "partition")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Append(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := Tables(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	events, plain := &tables[0], &tables[1]
	for name, test := range map[string]struct {
		query RowQuery
		want  []string // the rows begin with these
	}{
		"all":   {RowQuery{Table: plain}, []string{`{"id":2,`, `{"id":3,`, `{"id":1,`}},
		"first": {RowQuery{Table: plain, First: 2}, []string{`{"id":2,`, `{"id":3,`}},
		"last": {RowQuery{Table: events, Last: 2}, []string{
			`{"at \"the\\n\" door'":"2026-11-22T10:00:02Z","id":2}`, `{"at \"the\\n\" door'":"2026-11-22T10:00:03Z","id":3}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			test.query.Time = time.Minute
			var out strings.Builder
			if err := WriteRows(t.Context(), data, test.query, &out); err != nil {
				t.Fatal(err)
			}
			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			for i, want := range test.want {
				if len(got) != len(test.want) || !strings.HasPrefix(got[i], want) {
					t.Fatalf("got\n%s\nwant rows that begin with\n%s", out.String(), strings.Join(test.want, "\n"))
				}
			}
		})
	}
	err = WriteRows(t.Context(), data, RowQuery{Table: &catalog.Table{Name: "plain"}, Last: 1}, nil)
	if err == nil || !strings.Contains(err.Error(), "no time column") || event.HintOf(err) == "" {
		t.Errorf("the last rows without a time column: got %v, want an error with a hint", err)
	}
}
