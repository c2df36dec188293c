package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// listenSilently returns the address of a server that takes connections and never answers.
func listenSilently(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestPublishAllStalls has a table that hangs between two others, in catalogs of its own or in
// that of the others. Those must be published, and the report must have all three.
func TestPublishAllStalls(t *testing.T) {
	quick := limits{stall: time.Second, uploadTime: time.Minute, abandon: 100 * time.Millisecond}
	for name, hang := range map[string]func(t *testing.T, o *lake.TableOrder){
		"a REST catalog": func(t *testing.T, o *lake.TableOrder) { o.Catalog = "http://" + listenSilently(t) },
		"a database":     func(t *testing.T, o *lake.TableOrder) { o.Catalog = "postgres://u@" + listenSilently(t) + "/d" },
		"a file in the catalog of the others": func(t *testing.T, o *lake.TableOrder) {
			o.Files[0].Path += "-pipe"
			if err := syscall.Mkfifo(o.Files[0].Path, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			order := &lake.Order{}
			for i, table := range []string{"before", "hangs", "behind"} {
				o := orderOf(lake.Settings{Warehouse: filepath.Join(folder, "lake"), Table: "sales." + table}, 1, writeFile(t, folder, i+1, 0, 9))
				if table == "hangs" {
					hang(t, o)
				}
				order.Tables = append(order.Tables, *o)
			}
			report := publishAll(t.Context(), order, quick)
			for i, r := range report.Tables {
				want := ""
				if order.Tables[i].Table == "sales.hangs" {
					want = "no progress within 1s"
				}
				if r.Table != order.Tables[i].Table || (r.Covered == 1) != (want == "") || !strings.Contains(r.Error, want) || (r.Error == "") != (want == "") || (r.Hint == "") != (want == "") {
					t.Errorf("table %s: got %+v, want the error %q", order.Tables[i].Table, r, want)
				}
			}
		})
	}
}

// TestPublishAllStallsOnce has a catalog with many tables that does not answer. Each must take less
// time than the one before it.
func TestPublishAllStallsOnce(t *testing.T) {
	address := listenSilently(t)
	order := &lake.Order{}
	for range 20 {
		order.Tables = append(order.Tables, *orderOf(lake.Settings{Warehouse: t.TempDir(), Catalog: "http://" + address, Table: "sales.mails"}, 1))
		order.Tables[len(order.Tables)-1].Warehouse = order.Tables[0].Warehouse
	}
	began := time.Now()
	report := publishAll(t.Context(), order, limits{stall: time.Second, stallMin: 10 * time.Millisecond, uploadTime: time.Minute, abandon: 100 * time.Millisecond})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("20 tables took %v, want about 2 s", took)
	}
	for i, r := range report.Tables {
		if !strings.Contains(r.Error, "no progress within") {
			t.Errorf("table %d: got the error %q", i, r.Error)
		}
	}
}

// TestFailedAttemptsStall has a catalog that ends each connection without an answer, so that every
// attempt fails long before the table may stall. All of them together take longer, and must not.
func TestFailedAttemptsStall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			connection, err := l.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	}()
	stall := (1<<attempts - 2) * firstWait / 2 * 4 / 5 // of all waits, and longer than the longest of them
	order := &lake.Order{Tables: []lake.TableOrder{*orderOf(lake.Settings{Warehouse: t.TempDir(), Catalog: "http://" + l.Addr().String(), Table: "sales.mails"}, 1)}}
	report := publishAll(t.Context(), order, limits{stall: stall, uploadTime: time.Minute, abandon: 100 * time.Millisecond})
	if r := report.Tables[0]; !strings.Contains(r.Error, "no progress within") {
		t.Errorf("got the error %q", r.Error)
	}
}

// A failingTransport is one of a server that does not answer.
type failingTransport struct{}

func (failingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no answer")
}

// TestFailedRequestsStall lets a watch see requests and reads that fail, until it ends them.
func TestFailedRequestsStall(t *testing.T) {
	for name, step := range map[string]func(ctx context.Context){
		"requests": func(ctx context.Context) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if response, err := (watchedTransport{failingTransport{}}).RoundTrip(request); err == nil {
				_ = response.Body.Close()
				t.Error("the request has an answer")
			}
		},
		"reads": func(ctx context.Context) {
			_, _ = watchedReader{ctx, iotest.ErrReader(errors.New("broken"))}.Read(make([]byte, 1))
		},
		"calls in parallel": func(ctx context.Context) {
			_ = inParallel(ctx, 1, func(int) error { return errors.New("broken") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			w := &watch{stall: 300 * time.Millisecond}
			w.timer = time.AfterFunc(w.stall, func() { cancel(errors.New("stalled")) })
			for end := time.Now().Add(10 * time.Second); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nothing ended them")
				}
				step(context.WithValue(ctx, watchKey{}, w))
			}
		})
	}
}

// TestPublishAllEnded ends the committer while a table hangs. The report must have the one that was
// published, and say of the others why they were not.
func TestPublishAllEnded(t *testing.T) {
	folder := t.TempDir()
	settings := lake.Settings{Warehouse: filepath.Join(folder, "lake"), Table: "sales.mails"}
	order := &lake.Order{Tables: []lake.TableOrder{*orderOf(settings, 1, writeFile(t, folder, 1, 0, 9)), *orderOf(settings, 1), *orderOf(settings, 1)}}
	for i := range order.Tables[1:] {
		order.Tables[i+1].Warehouse, order.Tables[i+1].Catalog = folder, "http://"+listenSilently(t)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(2*time.Second, func() { cancel(lake.ErrEnded) })
	report := publishAll(ctx, order, defaultLimits)
	for i, r := range report.Tables {
		if i == 0 && r.Covered != 1 || i > 0 && !strings.Contains(r.Error, lake.ErrEnded.Error()) {
			t.Errorf("table %d: got %+v", i, r)
		}
	}
}

// TestSlowUpload lets a watch see a reader that takes longer than it may stall, in small steps.
func TestSlowUpload(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	w := &watch{stall: 300 * time.Millisecond}
	w.timer = time.AfterFunc(w.stall, func() { cancel(errors.New("stalled")) })
	r := watchedReader{context.WithValue(ctx, watchKey{}, w), strings.NewReader(strings.Repeat("x", 20))}
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if ctx.Err() != nil {
		t.Errorf("a reader that goes on: %v", context.Cause(ctx))
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Error("a reader that stopped: nothing ended it")
	}
}
