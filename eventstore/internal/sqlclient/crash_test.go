//go:build linux && cgo

package sqlclient

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// endlessQuery runs for hours and returns rows only at its end.
const endlessQuery = `SELECT count(*) FROM range(100000000000) a(i) WHERE hash(i) = 1`

// slow takes about a second.
const slow = `SELECT count(*) FROM range(150000000) a(i) WHERE hash(i) = 1`

func (f *folder) kill() {
	f.T.Helper()
	f.signal(syscall.SIGKILL)
}

// stop stops the worker that answers queries, which is done when none of its threads runs.
func (f *folder) stop() {
	f.T.Helper()
	f.signal(syscall.SIGSTOP)
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", f.worker(protocol.QueryRole).process.Pid))
		if err != nil {
			f.T.Fatal(err)
		}
		if len(threads) > 0 && !slices.ContainsFunc(threads, runs) {
			return
		}
		if time.Since(begin) > 10*time.Second {
			f.T.Fatal("the worker does not stop")
		}
	}
}

// runs reports whether a thread goes on after SIGSTOP. Its name, in parentheses, is
// before its state.
func runs(stat string) bool {
	b, err := os.ReadFile(stat)
	if err != nil {
		return false // it has ended
	}
	state := bytes.LastIndexByte(b, ')') + 2
	return state >= len(b) || b[state] != 'T'
}

// signal sends a signal to the worker that answers queries.
func (f *folder) signal(s syscall.Signal) {
	f.T.Helper()
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	if f.client.shared[protocol.QueryRole] == nil {
		f.T.Fatal("no worker runs")
	}
	if err := f.client.shared[protocol.QueryRole].process.Signal(s); err != nil {
		f.T.Fatal(err)
	}
}

func (f *folder) awaitRequests(n int) {
	f.T.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		f.client.mu.Lock()
		enough := f.client.shared[protocol.QueryRole] != nil && f.client.shared[protocol.QueryRole].requests >= n
		f.client.mu.Unlock()
		if enough {
			time.Sleep(50 * time.Millisecond) // the worker has begun them
			return
		}
		if time.Since(begin) > 10*time.Second {
			f.T.Fatal("the requests do not begin")
		}
	}
}

// TestCrash checks that a query which ran alone when its worker crashed gets an error, and
// that the next query succeeds.
func TestCrash(t *testing.T) {
	f := newFolder(t, Options{})
	f.Want(`SELECT 1`, "1") // start the worker, so that it begins requests at once
	done := make(chan error)
	go func() {
		_, err := storetest.Read(f.Query(t.Context(), slow))
		done <- err
	}()
	f.awaitRequests(1)
	f.kill()
	err := <-done
	if _, ok := errors.AsType[*event.Fault](err); !ok || !errors.Is(err, ErrCrashed) {
		t.Errorf("got %v", err)
	}
	begin := time.Now()
	f.Want(`SELECT 1`, "1")
	t.Logf("answered %v after the crash", time.Since(begin))
}

// TestKilledBeforeTheQuery checks that a request which the worker has not read when it is
// killed is sent to another worker, whatever its kind.
func TestKilledBeforeTheQuery(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(0)))
	for range 20 { // the end of the worker may be known or not
		f.Want(`SELECT count(*) FROM events`, "10")
		f.kill()
		f.Want(`SELECT count(*) FROM events`, "10")
	}
	for _, asked := range []struct {
		name string
		ask  func() error
	}{
		{"a query", func() error {
			_, err := storetest.Read(f.Query(t.Context(), `SELECT count(*) FROM events`))
			return err
		}},
		{"a query with rows of its own", func() error {
			rows := func(yield func(any, error) bool) { yield(map[string]int{"a": 1}, nil) }
			_, err := storetest.Read(f.client.Query(t.Context(), Query{Version: f.M.Version, Ends: f.Ends, SQL: `FROM ` + statement.SystemSchema + `.one`,
				External: []External{{Name: "one", Columns: []catalog.Column{{Name: "a", Type: "BIGINT"}}, Rows: rows}}}))
			return err
		}},
		{"a predicate", func() error { return f.client.CheckPredicate(t.Context(), f.M.Version, table.ID, "id = 1") }},
	} {
		f.Want(`SELECT 1`, "1")
		f.stop() // it reads nothing, as if it had just been killed
		done := make(chan error)
		go func() { done <- asked.ask() }()
		f.awaitRequests(1)
		f.kill()
		if err := <-done; err != nil {
			t.Errorf("%s, of a worker that was killed before: %v", asked.name, err)
		}
	}
}

// TestCrashCostsNoNeighbour checks that queries which ran beside others when their worker
// crashed are retried, each in a separate worker.
func TestCrashCostsNoNeighbour(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(0)))
	done := make(chan string)
	for range 3 {
		go func() {
			got, err := storetest.Read(f.Query(t.Context(), slow+` OR i < (SELECT count(*) FROM events)`))
			if err != nil {
				got = err.Error()
			}
			done <- got
		}()
	}
	f.awaitRequests(3)
	f.kill()
	for range 3 {
		if got := <-done; got != "10" {
			t.Errorf("got %s", got)
		}
	}
}

// TestCrashAmongRows checks that a query is not retried once rows were returned.
func TestCrashAmongRows(t *testing.T) {
	f := newFolder(t, Options{})
	rows, err := f.Query(t.Context(), `SELECT i FROM range(1000000000) t(i)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatalf("got no row and error %v, want a first row", rows.Err())
	}
	f.kill()
	for rows.Next() {
	}
	if !errors.Is(rows.Err(), ErrCrashed) {
		t.Errorf("half a result looks like a whole one: %v", rows.Err())
	}
}

func TestClose(t *testing.T) {
	f := newFolder(t, Options{})
	done := make(chan error)
	go func() {
		_, err := storetest.Read(f.Query(t.Context(), endlessQuery))
		done <- err
	}()
	f.awaitRequests(1)
	f.client.Close()
	if err := <-done; !errors.Is(err, protocol.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := f.Query(t.Context(), `SELECT 1`); !errors.Is(err, protocol.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if left, _ := os.ReadDir(f.Path + "/temp"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestRequestThatCannotBeSent checks that a failure to send the rest of a request is returned
// as its error, and that the worker, which waits for the rest, becomes free.
func TestRequestThatCannotBeSent(t *testing.T) {
	f := newFolder(t, Options{})
	f.Ask(`SELECT 1`)
	broken := errors.New("broken")
	a, err := f.client.ask(t.Context(), requestOf(&protocol.Query{SQL: `SELECT 1`}), false, func(*protocol.Writer) error { return broken })
	if a != nil || !errors.Is(err, broken) {
		t.Fatalf("%v, want %v", err, broken)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		f.client.mu.Lock()
		p := f.client.shared[protocol.QueryRole]
		free := p == nil || p.requests == 0
		f.client.mu.Unlock()
		if free {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the request does not end")
		}
	}
	f.Want(`SELECT 1`, "1")
}
