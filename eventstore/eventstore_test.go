//go:build cgo

package eventstore

import (
	"context"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func openStore(t testing.TB, folder string) *Store {
	t.Helper()
	s, err := Open(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openTable(t testing.TB, s *Store, c TableConfig) *Table {
	t.Helper()
	table, err := s.Table("events", c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func take(t testing.TB, table *Table) *Partition {
	t.Helper()
	p, _, err := table.TakeOver(context.Background(), "pipe", "part")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// output makes an output of one document per position.
func output(first uint64, docs ...string) *event.Output {
	out := &event.Output{Range: event.Range{First: first, Count: uint64(len(docs))}}
	for i, doc := range docs {
		out.Data = append(out.Data, doc...)
		out.Ends = append(out.Ends, uint32(len(out.Data)))
		out.From = append(out.From, uint32(i))
	}
	return out
}

func appendDocs(t testing.TB, p *Partition, first uint64, docs ...string) {
	t.Helper()
	if err := p.Append(context.Background(), output(first, docs...)); err != nil {
		t.Fatalf("append %d documents at %d: %v", len(docs), first, err)
	}
}

// ask returns the answer as CSV without its header.
func ask(t testing.TB, s *Store, sql string) string {
	t.Helper()
	rows, err := s.Query(context.Background(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer rows.Close()
	var b strings.Builder
	if err := Encode(&b, rows, FormatCSV, 0); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	_, body, _ := strings.Cut(b.String(), "\n")
	return strings.TrimSuffix(body, "\n")
}

func TestAppendAndAsk(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	appendDocs(t, p, 0,
		`{"time":"2026-01-02T03:04:05Z","id":1,"name":"short","long":"a text of more than twelve bytes","ok":true,"x":1.5,"meta":{"a":[1,2]}}`,
		`{"time":1767323046,"id":2,"name":"","long":"☾ and some more text in here","ok":false,"x":-2,"meta":[null]}`,
		`{"time":"2026-01-02T03:04:07Z"}`)
	got := ask(t, s, `SELECT * FROM events ORDER BY time`)
	want := `2026-01-02 03:04:05,1,short,a text of more than twelve bytes,true,1.5,"{""a"":[1,2]}"
2026-01-02 03:04:06,2,,☾ and some more text in here,false,-2,[null]
2026-01-02 03:04:07,,,,,,`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// committedRanges returns the ranges of a partition with their fingerprints.
func committedRanges(t *Table, pipeline, partition string) (event.Ranges, error) {
	var done event.Ranges
	err := t.store.inTransaction(context.Background(), func(tx *conn) (func(), error) {
		var err error
		done, err = t.readRanges(tx, partKey{pipeline, partition})
		return func() {}, err
	})
	return done, err
}
