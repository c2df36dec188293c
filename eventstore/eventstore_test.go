//go:build linux && cgo

package eventstore

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/eventstore/output"
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

// outputOf returns an output with one document per position.
func outputOf(first uint64, docs ...string) *event.Output {
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
	if err := p.Append(context.Background(), outputOf(first, docs...)); err != nil {
		t.Fatalf("append %d documents at %d: %v", len(docs), first, err)
	}
}

// ask returns the result as CSV without its header.
func ask(t testing.TB, s *Store, sql string, params ...Param) string {
	t.Helper()
	rows, err := s.Execute(context.Background(), Statement{SQL: sql, Params: params, Format: FormatCSV})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer rows.Close()
	var b strings.Builder
	if err := output.Write(&b, rows); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	_, body, _ := strings.Cut(b.String(), "\n")
	return strings.TrimSuffix(body, "\n")
}

// TestRelativeFolder opens a store by a relative path and then changes the working directory.
func TestRelativeFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	s := openStore(t, "events")
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	if got := ask(t, s, `SELECT id FROM events`); got != "1" {
		t.Errorf("the log has %q", got)
	}
	t.Chdir(t.TempDir())
	seal(t, s)
	if got := ask(t, s, `SELECT id FROM events`); got != "1" {
		t.Errorf("the file has %q", got)
	}
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
	return t.readRanges(partKey{pipeline, partition})
}

// seal closes the active log file and waits until its rows are in Parquet files.
func seal(t testing.TB, s *Store) {
	t.Helper()
	if err := s.log.Rotate(context.Background()); err != nil {
		t.Fatal(err)
	}
	wake(s.sealer)
	waitUntil(t, s, func() bool {
		start := s.current().LogStart
		return !slices.ContainsFunc(s.log.Ends(), func(f wal.FileEnd) bool { return f.Closed && f.Number >= start })
	})
}

// patience is the timeout of waits in tests. Files are merged and computed at a low priority,
// and other tests may keep all cores busy.
const patience = 3 * time.Minute

// await waits until done returns true. On timeout it fails the test and names what it waited
// for.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// waitUntil waits until maintenance makes a condition true.
func waitUntil(t testing.TB, s *Store, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		err := s.backlog.err
		s.mu.Unlock()
		if err != nil || time.Now().After(end) {
			t.Fatalf("maintenance does not get there: %v", err)
		}
	}
}

// A pace limits what goroutines append beside a test. Backups and changes of tables take time in
// proportion to the rows, so without a limit their work grows with their own time. The capacity
// is how many batches renew allows; after those, each batch of a goroutine waits twice as long as
// its batch before. Close the channel to end the goroutines.
type pace chan struct{}

// renew allows as many batches as the capacity again.
func (p pace) renew() {
	for len(p) < cap(p) {
		p <- struct{}{}
	}
}

// batches yields the numbers of a goroutine's batches, each when it may be appended.
func (p pace) batches() iter.Seq[int] {
	return func(yield func(int) bool) {
		wait := time.Millisecond
		for batch := 0; ; batch++ {
			select {
			case _, more := <-p:
				if !more {
					return
				}
				wait = time.Millisecond
			case <-time.After(wait):
				wait *= 2
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// filesOf returns the Parquet files of the table events.
func filesOf(s *Store) []*manifest.File { return s.current().Table("events").Files }
