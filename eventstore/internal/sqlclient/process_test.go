//go:build linux && cgo

package sqlclient

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// TestTempGoesWithItsWorker checks that the temporary files of an ended worker are removed.
func TestTempGoesWithItsWorker(t *testing.T) {
	f := newFolder(t, Options{})
	f.Want(`SELECT 1`, "1")
	p := f.worker(protocol.QueryRole)
	if err := os.MkdirAll(filepath.Join(p.settings.Temp(), "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.kill()
	<-p.exited
	if _, err := os.Stat(p.settings.Temp()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
}

// TestWritersAndQueriesApart kills the query worker while files are written, and the reverse.
// Neither affects the other.
func TestWritersAndQueriesApart(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.AddTable("events")
	for number := range uint64(3) {
		f.AppendFrame(number+1, storetest.FrameOf(table, 1000, storetest.Row(int(number)*1000)))
	}
	f.Want(`SELECT count(*) FROM events`, "3000")
	f.Seal(1)
	f.kill()
	f.Seal(2)
	writer := f.worker(protocol.SealRole)
	rows, err := f.Query(t.Context(), `SELECT id FROM events ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	writer.end()
	n := 0
	for rows.Next() {
		n++
	}
	if rows.Err() != nil || n != 3000 {
		t.Errorf("got %d rows and error %v, want 3000", n, rows.Err())
	}
	f.Seal(3)
	f.Want(`SELECT count(*) FROM events`, "3000")
}

// endSpare ends the spare worker, which starts when a query takes longTime, as any query may
// on a busy machine.
func (f *folder) endSpare() {
	f.client.mu.Lock()
	p := f.client.spare
	f.client.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// openDescriptors returns the number of open descriptors of the process.
func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestRequestsLeaveNothingOpen answers, rejects and cancels queries. One worker serves them
// all, and no descriptor stays open.
func TestRequestsLeaveNothingOpen(t *testing.T) {
	f := newFolder(t, Options{})
	f.Want(`SELECT 1`, "1")
	pid, before := f.worker(protocol.QueryRole).process.Pid, openDescriptors(t)
	for range 20 {
		f.Want(`SELECT 1`, "1")
		if _, err := storetest.Read(f.Query(t.Context(), `SELECT nothing`)); err == nil {
			t.Fatal("a wrong query was answered")
		}
		rows, err := f.Query(t.Context(), `FROM range(1000000)`)
		if err != nil {
			t.Fatal(err)
		}
		rows.Close()
	}
	f.endSpare()
	if after := openDescriptors(t); after > before+3 { // the runtime may need one
		t.Errorf("after 60 queries: got %d descriptors, want at most 3 more than the %d before", after, before)
	}
	if now := f.worker(protocol.QueryRole).process.Pid; now != pid {
		t.Errorf("got the worker %d, want %d still", now, pid)
	}
	if f.worker(protocol.QueryRole).requests != 0 {
		t.Errorf("%d requests are counted, and none runs", f.worker(protocol.QueryRole).requests)
	}
}

// TestEndedWorkersLeaveNothingOpen kills idle workers. Each query starts another, and no
// descriptor of the previous one stays open.
func TestEndedWorkersLeaveNothingOpen(t *testing.T) {
	f := newFolder(t, Options{})
	before := openDescriptors(t)
	for range 10 {
		f.Want(`SELECT 1`, "1")
		p := f.worker(protocol.QueryRole)
		if err := p.process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.exited
	}
	f.endSpare()
	if after := openDescriptors(t); after > before+3 { // the runtime may need one
		t.Errorf("after 10 workers: got %d descriptors, want at most 3 more than the %d before", after, before)
	}
}

// TestWorkerThatTakesNothing sends requests to a worker that takes none until its socket is
// full. That returns an error, and no descriptor of the request stays open.
func TestWorkerThatTakesNothing(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	p := &process{client: &Client{}, control: pair[0]}
	for range 100_000 {
		a := &answer{process: p}
		err := a.open()
		closed := a.socket.Close()
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "sendmsg") || !errors.Is(closed, os.ErrClosed) {
			t.Errorf("the request ends with %v, and closing its socket again with %v", err, closed)
		}
		return
	}
	t.Error("every request fits into the socket")
}

// TestWorkerThatCannotStart starts a worker with settings longer than the system allows. Each
// attempt fails and leaves nothing open, and later ones may succeed.
func TestWorkerThatCannotStart(t *testing.T) {
	f := newFolder(t, Options{})
	f.Want(`SELECT 1`, "1")
	f.client.SetFunctions([]protocol.Function{{Name: strings.Repeat("f", 1<<20), Type: "BIGINT"}})
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close leaked descriptors
	before := openDescriptors(t)
	for range 10 {
		if _, err := storetest.Read(f.Query(t.Context(), `SELECT 1`)); err == nil || !strings.Contains(err.Error(), "start a SQL worker") {
			t.Fatalf("got %v", err)
		}
	}
	if after := openDescriptors(t); after > before+3 { // the runtime may need one
		t.Errorf("after 10 attempts: got %d descriptors, want at most 3 more than the %d before", after, before)
	}
	f.client.SetFunctions(nil)
	f.Want(`SELECT 1`, "1")
}

// TestNoFilesLeft starts a worker while the process is out of descriptors. That returns an
// error and leaves no file open.
func TestNoFilesLeft(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
	}
	defer set(limit)
	free := func() uint64 { // the lowest free descriptor
		t.Helper()
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		return uint64(file.Fd())
	}
	f := newFolder(t, Options{})
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close leaked descriptors
	first := free()
	for files := range uint64(6) {
		few := limit
		few.Cur = first + files
		set(few)
		f.client.mu.Lock()
		_, err := f.client.start(protocol.QueryRole, false)
		f.client.mu.Unlock()
		set(limit)
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%d files: error %v, want EMFILE", files, err)
		}
		if now := free(); now > first {
			t.Fatalf("%d files: descriptor %d is free, was %d", files, now, first)
		}
	}
	f.Want(`SELECT 1`, "1")
}

// TestUnresponsiveQueryHoldsUpNobody checks that a query which ignores its cancellation blocks no
// other. Queries without a first row, and new ones, go to a fresh worker long before the old
// one is killed.
func TestUnresponsiveQueryHoldsUpNobody(t *testing.T) {
	f := newFolder(t, Options{})
	f.AddTable("events")
	const limit = 500 * time.Millisecond
	unresponsive := make(chan error, 1)
	go func() {
		_, err := storetest.Read(f.client.Query(t.Context(), Query{Version: f.M.Version, SQL: `SELECT count(*) FROM range(100000000000) t(i) WHERE i % 7 = 3`, Limits: protocol.Limits{Time: limit}}))
		unresponsive <- err
	}()
	worker := func() (p *process, waiting int) {
		f.client.mu.Lock()
		defer f.client.mu.Unlock()
		if p = f.client.shared[protocol.QueryRole]; p != nil {
			waiting = len(p.queries)
		}
		return p, waiting
	}
	await := func(n int) (p *process) {
		for have := 0; have != n; time.Sleep(time.Millisecond) {
			p, have = worker()
		}
		return p
	}
	first := await(1)
	if err := first.process.Signal(syscall.SIGSTOP); err != nil { // the worker stops responding
		t.Fatal(err)
	}
	f.Want(`SELECT 42`, "42") // sent to the stopped worker
	f.Want(`SELECT 43`, "43") // sent later
	select {
	case <-first.exited:
		t.Errorf("the answers came after the worker was killed, which is %v after the limit", grace)
	default:
	}
	if p, _ := worker(); p == first {
		t.Error("queries still go to the worker that ignores the cancellation")
	}
	if err := <-unresponsive; err == nil || !strings.Contains(err.Error(), "longer than 500ms") {
		t.Errorf("the query that was stopped: %v", err)
	}
	<-first.exited
}

// TestHeldUpWorkerIsLeft checks that queries also leave a worker that a query blocks within
// its time limit. No neighbour waits long, whether it was sent before or after the block was
// detected, and the long query continues.
func TestHeldUpWorkerIsLeft(t *testing.T) {
	mine, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := newFolder(t, Options{})
	f.AddTable("events")
	f.Want(`SELECT 1`, "1")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := storetest.Read(f.Query(ctx, `SELECT count(*) FROM range(100000000000) t(i) WHERE i % 7 = 3`))
		ended <- err
	}()
	eventually := func(what string, is func(workers []WorkerInfo) bool) []WorkerInfo {
		t.Helper()
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			workers := f.client.Workers()
			if is(workers) {
				return workers
			}
			if time.Since(start) > 10*time.Second {
				t.Fatalf("waited in vain until %s; the workers are %+v", what, workers)
			}
		}
	}
	workers := eventually("a second worker is ready beside the one of the long query", func(all []WorkerInfo) bool {
		return len(all) == 2 && all[0].Requests == 1 && all[1].Requests == 0 && all[1].RequestsTotal > 0
	})
	first, spare := workers[0].PID, workers[1].PID
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{"42", "43"} {
		start := time.Now()
		f.Want(`SELECT `+answer, answer)
		if took := time.Since(start); took > 2*longTime {
			t.Errorf("SELECT %s took %v, want less than %v", answer, took, 2*longTime)
		}
	}
	for pid, want := range map[int]int{first: leftNice, spare: 0} {
		if nice, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || nice != min(20-want, mine) { // the system call returns 20 minus the nice value
			t.Errorf("process %d has priority %d, want a nice value of %d: %v", pid, nice, want, err)
		}
	}
	if err := syscall.Kill(first, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	isFirst := func(w WorkerInfo) bool { return w.PID == first }
	select {
	case err := <-ended:
		t.Errorf("the long query ended: %v", err)
	case <-time.After(time.Second):
		if !slices.ContainsFunc(f.client.Workers(), isFirst) {
			t.Error("the worker of the long query ended")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the canceled query ended with %v, want %v", err, context.Canceled)
	}
	eventually("the worker that was left has ended", func(all []WorkerInfo) bool { return !slices.ContainsFunc(all, isFirst) })
}

// TestLongQueriesShareWorkers checks that long queries start at most queryWorkersMax workers,
// and that a query alone in its worker stays there.
func TestLongQueriesShareWorkers(t *testing.T) {
	f := newFolder(t, Options{})
	f.AddTable("events")
	ctx, cancel := context.WithCancel(t.Context())
	const queries = 8
	ended := make(chan error, queries)
	for range queries {
		go func() {
			_, err := storetest.Read(f.Query(ctx, `SELECT count(*) FROM range(100000000000) t(i) WHERE i % 7 = 3`))
			ended <- err
		}()
		time.Sleep(longTime / 8)
	}
	peak := 0
	for start := time.Now(); time.Since(start) < 4*time.Second; time.Sleep(10 * time.Millisecond) {
		peak = max(peak, len(f.client.Workers()))
	}
	cancel()
	for range queries {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a query was canceled: %v", err)
		}
	}
	if peak < 2 || peak > queryWorkersMax {
		t.Errorf("there were %d workers at a time, want 2 to %d", peak, queryWorkersMax)
	}
}

func TestLacksMemory(t *testing.T) {
	for _, test := range []struct {
		report string
		want   bool
	}{
		{"fatal error: runtime: out of memory\n\ngoroutine 1", true},
		{"runtime: mmap: cannot allocate memory\n", true},
		{"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", true},
		{"goroutine 1\npanic: no\n", false},
		{"", false},
	} {
		if got := lacksMemory(test.report); got != test.want {
			t.Errorf("%q: got %v, want %v", test.report, got, test.want)
		}
	}
}

func TestEndlessQueriesKeepNobodyOut(t *testing.T) {
	f := newFolder(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	for range 4 {
		go func() {
			_, err := storetest.Read(f.client.Query(ctx, Query{Version: f.M.Version, Ends: f.Ends, SQL: endlessQuery, Limits: protocol.Limits{Time: time.Hour}}))
			done <- err
		}()
	}
	f.awaitRequests(4)
	f.Want(`SELECT 1`, "1")
	select {
	case err := <-done:
		t.Errorf("an endlessQuery query has ended before the fifth: %v", err)
	default:
	}
	cancel()
	for range 4 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestReplacedWriter ends a writer while its replacement is already writing. The
// replacement's files must remain.
func TestReplacedWriter(t *testing.T) {
	c := newFolder(t, Options{}).client
	start := func() *process {
		c.mu.Lock()
		defer c.mu.Unlock()
		p, err := c.start(protocol.MergeRole, false)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	old, now := start(), start()
	file := filepath.Join(now.settings.Temp(), "file")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old.end()
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	now.end()
}

func BenchmarkStart(b *testing.B) {
	f := newFolder(b, Options{})
	for b.Loop() {
		f.Ask(`SELECT 1`)
		f.worker(protocol.QueryRole).end()
	}
}
