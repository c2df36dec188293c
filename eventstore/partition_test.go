//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/event/ledger"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// holdReservation reserves positions of a partition, like a running append.
func holdReservation(t *testing.T, p *Partition, r event.Range) (end func()) {
	t.Helper()
	held, err := p.owner.Reserve(t.Context(), r)
	if err != nil || len(held.Missing) == 0 {
		t.Fatalf("reserve %v: got %+v and error %v, want missing rows", r, held, err)
	}
	return sync.OnceFunc(func() { held.Finish(ledger.Aborted) })
}

// TestWaitingEnds checks that a caller waiting for an append of the same partition stops when
// its context ends, and continues when the append has ended.
func TestWaitingEnds(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	end := holdReservation(t, p, event.Range{First: 5, Count: 5})
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for what, err := range map[string]error{
		"an append of the last position":  p.Append(short(), outputOf(9, `{}`)),
		"an append of the first position": p.Append(short(), outputOf(4, `{}`, `{}`)),
		"a take-over":                     func() error { _, _, err := table.TakeOver(short(), "pipe", "part"); return err }(),
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := table.SetPosition(short(), "pipe", "part", 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a position that is set: %v", err)
	}
	other, _, err := table.TakeOver(short(), "pipe", "other") // another partition does not wait
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, other, 5, `{"id":1}`)
	done := make(chan error, 1)
	go func() { done <- table.SetPosition(context.Background(), "pipe", "part", 3) }()
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	have, err := committedRanges(table, "pipe", "part")
	if err != nil || !slices.EqualFunc(have, event.Ranges{{Count: 3}}, func(a, b event.Range) bool { return a.First == b.First && a.Count == b.Count }) {
		t.Errorf("committed %v, %v", have, err)
	}
}

// TestNeighboursDoNotWait appends positions next to those of a running append.
func TestNeighboursDoNotWait(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	defer holdReservation(t, p, event.Range{First: 5, Count: 5})()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, first := range []uint64{4, 10} {
		if err := p.Append(ctx, outputOf(first, `{"id":1}`)); err != nil {
			t.Errorf("at %d: %v", first, err)
		}
	}
}

// TestAppendsWaitForRoom lets closed log files accumulate behind a running append. Up to a
// maximum number of files appends continue, then they wait until files are sealed.
func TestAppendsWaitForRoom(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	end := sync.OnceFunc(s.appends.begin())
	defer end()
	closed := func() (n int) {
		start := s.current().LogStart
		for _, f := range s.log.Ends() {
			if f.Closed && f.Number >= start {
				n++
			}
		}
		return n
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := range uint64(backlogMax + 1) {
		if err := p.Append(ctx, outputOf(n, `{"id":1}`)); err != nil {
			t.Fatalf("with %d closed files: %v", closed(), err)
		}
		if err := s.log.Rotate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := closed(); n != backlogMax+1 {
		t.Fatalf("%d files are closed", n)
	}
	short, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer stop()
	if err := p.Append(short, outputOf(100, `{"id":2}`)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with %d closed files: %v", backlogMax+1, err)
	}
	appended := make(chan error, 1)
	go func() { appended <- p.Append(context.Background(), outputOf(200, `{"id":3}`)) }()
	end()
	if err := <-appended; err != nil {
		t.Error(err)
	}
	waitUntil(t, s, func() bool { return closed() == 0 })
	if got := ask(t, s, "SELECT count(*), max(id) FROM events"); got != "6,3" {
		t.Errorf("rows %s", got)
	}
}

// TestCloseEndsWaiting closes a store while an append waits for space and a delete waits for
// a reader.
func TestCloseEndsWaiting(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":1}`, `{"id":2}`)
	seal(t, s)
	held := s.snapshot()
	d, err := s.Delete(t.Context(), "events", "id = 1")
	if err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer stop()
	if err := s.WaitDeleted(short, d); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a delete whose rows a reader may still see: %v", err)
	}
	waited := make(chan error, 2)
	go func() { waited <- s.WaitDeleted(context.Background(), d) }()
	end := s.appends.begin()
	for n := range uint64(backlogMax + 1) {
		appendDocs(t, p, 10+n, `{"id":1}`)
		if err := s.log.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	go func() { waited <- p.Append(context.Background(), outputOf(100, `{"id":2}`)) }()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for range 2 {
		if err := <-waited; !errors.Is(err, ErrClosed) && !errors.Is(err, wal.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	held.release()
	end()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, _, err := p.table.TakeOver(t.Context(), "pipe", "part"); !errors.Is(err, ErrClosed) {
		t.Errorf("a take-over of a closed store: %v", err)
	}
}
