//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A follower collects the rows of a tail.
type follower struct {
	mu      sync.Mutex
	ids     []int
	skipped int
	columns string // of the first batch
	begun   chan struct{}
	ended   chan error
	cancel  context.CancelFunc
	block   chan struct{} // if not nil, receive from it before each batch of rows
	blocked atomic.Bool   // a batch is waiting on block
}

func follow(t *testing.T, s *Store, q catalog.TailRequest, block chan struct{}) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{begun: make(chan struct{}), ended: make(chan error, 1), cancel: cancel, block: block}
	q.Table = "events"
	first := true
	go func() {
		f.ended <- s.Tail(ctx, q, func(b *catalog.TailBatch) error {
			if first {
				first = false
				for _, column := range b.Columns {
					f.columns += column.Name + " "
				}
				close(f.begun)
				return nil
			}
			if f.block != nil {
				f.blocked.Store(true)
				<-f.block
			}
			f.add(t, b)
			return nil
		})
	}()
	select {
	case <-f.begun:
	case err := <-f.ended:
		t.Fatal(err)
	}
	return f
}

func (f *follower) add(t *testing.T, b *catalog.TailBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Skipped {
		f.skipped++
	}
	n := 0
	for line := range strings.Lines(string(b.Rows)) {
		var row struct{ ID int }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		f.ids = append(f.ids, row.ID)
		n++
	}
	if n != b.Count {
		t.Errorf("a batch of %d rows says %d", n, b.Count)
	}
}

func (f *follower) seen() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ids)
}

// wait waits until a row has arrived, and returns all rows.
func (f *follower) wait(t *testing.T, s *Store, id int) []int {
	t.Helper()
	waitUntil(t, s, func() bool { return slices.Contains(f.seen(), id) })
	return f.seen()
}

func idsFrom(first, n, step int) (ids []int) {
	for i := range n {
		ids = append(ids, first+i*step)
	}
	return ids
}

// TestTail follows a table while log files are sealed and its schema changes. Each row must
// arrive once, in order.
func TestTail(t *testing.T) {
	s := openWork(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	doc := func(id int) string {
		return fmt.Sprintf(`{"time":"2026-11-%02dT00:00:00Z","id":%d,"c%d":%d,"text":%q}`, 1+id%3, id, id/700, id, strings.Repeat("x", 200))
	}
	appendRows := func(first, n int) {
		var docs []string
		for id := first; id < first+n; id++ {
			docs = append(docs, doc(id))
		}
		appendDocs(t, p, uint64(first), docs...)
	}
	appendRows(0, 50)
	all, odd := follow(t, s, catalog.TailRequest{}, nil), follow(t, s, catalog.TailRequest{Where: "id % 2 = 1"}, nil)
	const end = 5_000
	for id := 50; id < end; id += 50 {
		appendRows(id, 50)
		if id%500 == 0 { // some two files; tailFiles may be sealed before they are read
			all.wait(t, s, id+49)
			odd.wait(t, s, id+49)
		}
		if id%1000 == 0 {
			seal(t, s)
		}
	}
	if got, want := all.wait(t, s, end-1), idsFrom(50, end-50, 1); !slices.Equal(got, want) {
		t.Errorf("shown are %d rows from %d to %d, not %d", len(got), got[0], got[len(got)-1], len(want))
	}
	if got, want := odd.wait(t, s, end-1), idsFrom(51, (end-50)/2, 2); !slices.Equal(got, want) {
		t.Errorf("shown with a condition are %d rows, not %d", len(got), len(want))
	}
	if all.skipped+odd.skipped > 0 {
		t.Errorf("got skipped rows %d and %d times, want never", all.skipped, odd.skipped)
	}
	if sealedFiles(s) < 3 {
		t.Errorf("%d files were sealed: the test proves little", sealedFiles(s))
	}
	odd.cancel()
	if err := <-odd.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled tail: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-all.ended; err != nil {
		t.Errorf("the store is closed: %v", err)
	}
}

// TestTailSince starts with the stored rows from a time on, in files and in the log.
func TestTailSince(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	appendDocs(t, p, 0, `{"time":"2026-11-01T00:00:00Z","id":0}`, `{"time":"2026-11-03T00:00:00Z","id":2}`)
	seal(t, s)
	appendDocs(t, p, 2, `{"time":"2026-11-02T00:00:00Z","id":1}`, `{"time":"2026-11-04T00:00:00Z","id":3}`)
	f := follow(t, s, catalog.TailRequest{Since: time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC), Where: "id < 5"}, nil)
	if f.columns != "time id " {
		t.Errorf("got columns %q, want %q", f.columns, "time id ")
	}
	appendDocs(t, p, 4, `{"time":"2026-10-01T00:00:00Z","id":4}`, `{"time":"2026-10-01T00:00:00Z","id":5}`)
	if got := f.wait(t, s, 4); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("shown are %v", got)
	}
}

// TestShowAndKillTails lists a tail among the queries and ends it.
func TestShowAndKillTails(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":0}`)
	f := follow(t, s, catalog.TailRequest{Where: "id > 0", Client: "test"}, nil)
	appendDocs(t, p, 1, `{"id":1}`, `{"id":2}`)
	f.wait(t, s, 2)
	if got := ask(t, s, `SELECT state, rows, client, sql FROM queries WHERE sql LIKE 'TAIL%'`); got != "running,2,test,TAIL events WHERE id > 0" {
		t.Errorf("the tail is listed as %q", got)
	}
	all := s.Queries()
	if len(all) != 1 {
		t.Fatalf("got queries %+v, want one", all)
	}
	ask(t, s, "KILL "+Text(all[0].ID))
	if err := <-f.ended; err == nil || err.Error() != "the query was ended by KILL" {
		t.Errorf("a killed tail: got error %v, want that KILL ended it", err)
	}
	if all := s.Queries(); len(all) != 0 {
		t.Errorf("after KILL: got queries %+v, want none", all)
	}
}

// TestTailRefuses checks the errors for invalid requests.
func TestTailRefuses(t *testing.T) {
	s := openStore(t, t.TempDir())
	openTable(t, s, TableConfig{})
	for want, q := range map[string]catalog.TailRequest{
		"no table nothing":   {Table: "nothing"},
		"syntax error":       {Table: "events", Where: "FROM"},
		"not BOOLEAN":        {Table: "events", Where: "1"},
		"has no time column": {Table: "events", Since: time.Now()},
		"one expression":     {Table: "events", Where: "true UNION SELECT 1"},
	} {
		err := s.Tail(t.Context(), q, func(*catalog.TailBatch) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// hasLogFile reports whether a file of the log exists.
func hasLogFile(s *Store, number uint64) bool {
	_, err := os.Stat(wal.Path(manifest.LogFolder(s.folder), number))
	return !errors.Is(err, os.ErrNotExist)
}

// TestTailThatStalls follows a table with a reader that takes nothing while many log files are
// sealed. The reader must not block appends or keep files forever, and must learn that rows were
// skipped.
func TestTailThatStalls(t *testing.T) {
	s := openWork(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	block := make(chan struct{})
	f := follow(t, s, catalog.TailRequest{}, block)
	appendDocs(t, p, 0, `{"id":0}`)
	waitUntil(t, s, f.blocked.Load)
	for id := 1; id <= tailFiles+2; id++ {
		appendDocs(t, p, uint64(id), fmt.Sprintf(`{"id":%d}`, id))
		seal(t, s)
	}
	close(block)
	appendDocs(t, p, 100, `{"id":100}`)
	got := f.wait(t, s, 100)
	if !slices.Equal(got, []int{0, 100}) || f.skipped != 1 {
		t.Errorf("got rows %v, skipped %d times, want [0 100], skipped once", got, f.skipped)
	}
	waitUntil(t, s, func() bool { return !hasLogFile(s, 1) })
	f.cancel()
	<-f.ended
}

// TestTailHold has a reader take rows late, in fake time. The sealed file with the next rows is
// kept for some seconds, and then removed before the reader has taken its rows.
func TestTailHold(t *testing.T) {
	for late, kept := range map[time.Duration]bool{tailHold - time.Second: true, tailHold + time.Second: false} {
		s := openWork(t, t.TempDir())
		table := openTable(t, s, TableConfig{})
		p := take(t, table)
		f := &tail{store: s, running: new(runningQuery), table: table, held: s.snapshot()}
		f.next = f.held.end()
		appendDocs(t, p, 0, `{"id":0}`)
		seal(t, s)
		synctest.Test(t, func(t *testing.T) {
			f.emit = func(*catalog.TailBatch) error {
				time.Sleep(late)
				for tries := 0; hasLogFile(s, 1) != kept && tries < 10_000; tries++ {
					_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 1e6}, nil) // in real time the sealer removes it
				}
				if got := hasLogFile(s, 1); got != kept {
					t.Errorf("%v late: the sealed file exists: got %v, want %v", late, got, kept)
				}
				return nil
			}
			if err := f.send(new(catalog.TailBatch)); err != nil {
				t.Error(err)
			}
		})
		var got catalog.TailBatch
		f.emit = func(b *catalog.TailBatch) error { got = *b; return nil }
		if err := f.poll(t.Context()); err != nil {
			t.Error(err)
		}
		if rows := string(got.Rows); got.Skipped == kept || (rows != "") != kept {
			t.Errorf("%v late: got the rows %q, skipped %v, want that the row is sent: %v", late, rows, got.Skipped, kept)
		}
		f.held.release()
	}
}

// TestTailThatFallsBehind follows a table with a reader that takes nothing while log files
// with several schema versions are sealed, and then resumes. It must not miss a row.
func TestTailThatFallsBehind(t *testing.T) {
	s := openWork(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":0,"n":0}`)
	block := make(chan struct{})
	f := follow(t, s, catalog.TailRequest{Where: "n >= id"}, block)
	appendDocs(t, p, 1, `{"id":1,"n":1}`)
	waitUntil(t, s, f.blocked.Load)
	stalled, id := time.Now(), 2
	for range tailFiles - 1 {
		for _, fraction := range []string{"", "", ".5"} { // n widens, and the manifest drops the first version
			appendDocs(t, p, uint64(id), fmt.Sprintf(`{"id":%d,"n":%[1]d%s,"c%[1]d":1}`, id, fraction))
			id++
		}
		seal(t, s)
	}
	if time.Since(stalled) > tailHold/2 {
		t.Skip("this machine is too slow to seal files while they are kept for the reader")
	}
	go func() {
		for t.Context().Err() == nil {
			if err := s.collectGarbage(); err != nil { // as the sealer does
				t.Error(err)
			}
			select {
			case block <- struct{}{}:
			case <-t.Context().Done():
			}
		}
	}()
	if got, want := f.wait(t, s, id-1), idsFrom(1, id-1, 1); !slices.Equal(got, want) || f.skipped > 0 {
		t.Errorf("shown are %v, not %v, skipped %d times", got, want, f.skipped)
	}
	f.cancel()
	<-f.ended
}
