//go:build linux && cgo

package sqlworker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/child"
)

// A process is a worker, seen from its parent.
type process struct {
	client   *Client
	settings protocol.Settings
	process  *child.Process
	control  int // descriptor of the socket that takes those of requests
	stderr   *child.Tail

	functions []protocol.Function // as settings has them
	exited    chan struct{}       // closed when the process has ended

	started time.Time
	mapped  int64 // bytes that it had mapped after its first request

	// Under client.mu.
	requests int // under way
	taken    int // requests since its start
	peak     int // requests that were under way at the same time since there was none
	idle     *time.Timer
	retired  bool // gets no more requests
	killed   bool
	queries  map[*answer]bool // under way
	ignoring int              // requests that ignore their end
}

// start starts a worker. The caller holds client.mu.
func (c *Client) start(r protocol.Role, alone bool) (*process, error) {
	p := &process{client: c, started: time.Now(), exited: make(chan struct{}), queries: map[*answer]bool{}, settings: protocol.Settings{Folder: c.options.Folder, Number: c.started, Role: r, Memory: writerMemory, Threads: c.options.Threads, RowGroup: c.options.RowGroup, File: c.options.File, Functions: c.functions}}
	p.functions = c.functions
	switch {
	case r == protocol.QueryRole:
		p.settings.Memory = max(c.options.Memory-2*writerMemory, queriesMemoryMin)
	case alone:
		p.settings.Memory = wideMemory
	}
	c.started++
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("eventstore: start a SQL worker: %w", err)
	}
	return p, nil
}

func (p *process) start() error {
	text, err := json.Marshal(p.settings)
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "sql worker")
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = unix.Close(pair[0])
		return err
	}
	defer null.Close()
	stderr, theirStderr, err := os.Pipe()
	if err != nil {
		_ = unix.Close(pair[0])
		return err
	}
	defer theirStderr.Close()
	p.process, err = child.Start(child.Command{
		Name: "sql-worker", Env: p.settings.Environment(text),
		Files: []*os.File{null, null, theirStderr, theirs},
	})
	if err != nil {
		_ = unix.Close(pair[0])
		_ = stderr.Close()
		return err
	}
	p.control, p.stderr = pair[0], child.ReadTail(stderr)
	go func() {
		<-p.process.Exited()
		p.stderr.Finish()
		_ = os.RemoveAll(p.settings.Temp())
		p.client.forget(p) // before anyone hears of the end, and asks again
		close(p.exited)
	}()
	return nil
}

// forget drops a process that has ended.
func (c *Client) forget(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = unix.Close(p.control)
	p.control, p.retired = -1, true
	if c.shared[p.settings.Role] == p {
		delete(c.shared, p.settings.Role)
	}
	if c.spare == p {
		c.spare = nil
	}
	delete(c.others, p)
}

// retire gives a worker no more requests; it ends with those that it has. The caller holds
// client.mu.
func (p *process) retire() {
	c := p.client
	p.retired = true
	if c.spare == p {
		c.spare, c.others[p] = nil, true
	}
	if p.requests == 0 && p.idle != nil {
		p.idle.Reset(0)
	}
}

// kill ends a process that does not end by itself.
func (p *process) kill() {
	p.client.mu.Lock()
	p.killed, p.retired = true, true
	p.client.mu.Unlock()
	_ = p.process.Kill()
}

// end ends a process and waits for its end.
func (p *process) end() {
	p.kill()
	<-p.exited
}

// acquire returns a worker for a request, which release gives back.
func (c *Client) acquire(q *protocol.Request, alone bool) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, protocol.ErrClosed
	}
	r := protocol.RoleOf(q)
	p := c.shared[r]
	switch {
	case alone:
		started, err := c.start(r, true)
		if err != nil {
			return nil, err
		}
		c.others[started], p = true, started
	case p == nil || p.retired || p.ignoring > 0:
		next, err := c.next(q)
		if err != nil {
			return nil, err
		}
		if p != nil {
			c.leave(p)
		}
		c.shared[r], p = next, next
	case q.Query != nil:
		c.keepSpare(q.Query)
	}
	p.take()
	return p, nil
}

// next returns the worker that is to be the shared one of a request's role: the spare, in whose
// place another one starts, or a fresh one. The caller holds c.mu.
func (c *Client) next(q *protocol.Request) (*process, error) {
	p := c.spare
	if q.Query == nil || p == nil {
		return c.start(protocol.RoleOf(q), false)
	}
	c.spare = nil
	if p.retired {
		c.others[p] = true
		return c.start(protocol.QueryRole, false)
	}
	c.keepSpare(q.Query)
	return p, nil
}

// leave gives a worker no more requests. Those that it has go on at a lower priority: some may
// have held up others. The caller holds c.mu.
func (c *Client) leave(p *process) {
	if c.shared[p.settings.Role] == p {
		delete(c.shared, p.settings.Role)
	}
	c.others[p] = true
	if p.settings.Role == protocol.QueryRole && p.control >= 0 {
		lowerPriority(strconv.Itoa(p.process.Pid), leftNice)
	}
}

// take counts a request of the worker. The caller holds client.mu.
func (p *process) take() {
	if p.requests++; p.requests == 1 {
		p.peak = 0
	}
	p.peak = max(p.peak, p.requests)
	p.taken++
	if p.idle != nil {
		p.idle.Stop()
	}
}

// keepSpare keeps a worker beside the shared one, which takes over when that one has to be left. The
// spare runs a query over the same data, so that it answers the next one at once. The caller holds c.mu.
func (c *Client) keepSpare(q *protocol.Query) {
	if p := c.spare; p != nil && p.requests == 0 && p.idle != nil {
		p.idle.Reset(idleTime)
	}
	if c.closed || c.spare != nil || c.queryWorkers() >= queryWorkersMax {
		return
	}
	p, err := c.start(protocol.QueryRole, false)
	if err != nil {
		return // the next query that needs a worker reports it
	}
	c.spare = p
	p.take()
	go p.warm(&protocol.Query{Version: q.Version, Ends: q.Ends, SQL: "SELECT 1", Limits: q.Limits})
}

// warm has a worker that was taken answer a query, which may fail: the log may have gone on.
func (p *process) warm(q *protocol.Query) {
	limited, stop := withTimeLimit(context.Background(), protocol.TimeDefault)
	defer stop()
	a, err := p.send(limited, requestOf(q), sendNothing)
	if err == nil {
		_, err = io.Copy(io.Discard, a.in.Buffered)
		_ = a.finish(err)
	}
}

// sendNothing is for requests that nothing follows.
func sendNothing(*protocol.Writer) error { return nil }

// queryWorkers returns how many workers for queries there are. The caller holds c.mu.
func (c *Client) queryWorkers() (n int) {
	for _, p := range c.processes() {
		if p.settings.Role == protocol.QueryRole {
			n++
		}
	}
	return n
}

// release gives a worker back. One without requests ends after a while.
func (p *process) release() {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	mapped := memoryOf(p.process.Pid, "VmData") // private, resident or not
	if p.mapped == 0 {
		p.mapped = mapped
	}
	p.retired = p.retired || mapped-p.mapped > retireFrom
	if p.requests--; p.requests > 0 {
		return
	}
	wait := idleTime
	if p.settings.Role != protocol.QueryRole {
		wait = writerIdleTime
	}
	if p.retired || c.others[p] {
		wait = 0
	}
	p.idle = time.AfterFunc(wait, func() {
		c.mu.Lock()
		idle := p.requests == 0
		p.retired = p.retired || idle
		c.mu.Unlock()
		if idle {
			p.kill()
		}
	})
}

// retireFrom is by how much the memory that a worker has mapped may grow before it gets no
// more requests: allocators keep what they once mapped, and it counts against the limit.
const retireFrom = memorySlack / 2

// memoryOf returns the bytes that a field of /proc/PID/status says, or 0.
func memoryOf(pid int, field string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\n"+field+":")
	text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, _ := strconv.ParseInt(text, 10, 64)
	return kib << 10
}

// An answer is a request under way, seen from the parent.
type answer struct {
	process *process
	query   *protocol.Query // nil for other requests
	stays   bool            // see request
	started time.Time
	ctx     context.Context
	socket  *os.File
	in      *protocol.Reader
	stop    func() bool // of what cancels the request with ctx
	begun   bool        // the worker has read the request
	once    sync.Once
	deaf    *time.Timer // see obeyTime
	long    *time.Timer // see longTime

	// Under client.mu.
	waits    bool // for its first rows
	moved    bool // to another worker
	ignoring bool // its end
	ended    bool
}

// errWorkerLost says that another request ended the worker, errMoved that one does not end.
var (
	errWorkerLost = errors.New("another query ended the worker")
	errMoved      = errors.New("another query holds up the worker")
)

// errNotBegun says that the worker ended before it read the request.
var errNotBegun = errors.New("eventstore: the SQL worker ended before it read the request")

// beginTries is how many workers are asked until one reads the request.
const beginTries = 3

// ask sends a request to a worker that begins with it. One that was killed while it had nothing
// to do, or with so many other requests that it had not read this one, is replaced. The caller
// reads the answer and calls finish.
func (c *Client) ask(ctx context.Context, q *protocol.Request, alone bool, rest func(*protocol.Writer) error) (a *answer, err error) {
	for range beginTries {
		if a, err = c.send(ctx, q, alone, rest); !errors.Is(err, errNotBegun) {
			return a, err
		}
	}
	return nil, err
}

// send sends a request to a worker, and waits until it has read it. errMoved says that another
// query holds the worker up.
func (c *Client) send(ctx context.Context, q *protocol.Request, alone bool, rest func(*protocol.Writer) error) (*answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	p, err := c.acquire(q, alone)
	if err != nil {
		return nil, err
	}
	return p.send(ctx, q, rest)
}

// send sends a request to a worker that was taken for it.
func (p *process) send(ctx context.Context, q *protocol.Request, rest func(*protocol.Writer) error) (*answer, error) {
	a := &answer{process: p, query: q.Query, stays: q.Stays, started: time.Now(), ctx: ctx}
	if err := a.open(); err != nil {
		p.release()
		return nil, fmt.Errorf("eventstore: ask the SQL worker: %w", err)
	}
	a.stop = context.AfterFunc(ctx, a.cancel)
	a.watch()
	out := protocol.NewWriter(a.socket)
	err := out.WriteJSON(protocol.RequestMessage, q)
	if err == nil {
		if err = rest(out); err == nil {
			err = out.Write(protocol.EndOfRequest)
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = a.awaitBegin() // it says why a worker that has ended did
	}
	if err != nil && a.endWait() {
		go func() { _ = a.finish(nil) }() // the worker may take as long as grace
		return nil, errMoved
	}
	if err != nil {
		return nil, a.finish(err)
	}
	return a, nil
}

// awaitBegin waits until the worker has read the request.
func (a *answer) awaitBegin() error {
	kind, _, err := a.in.Read()
	if err == nil && kind != protocol.BegunMessage {
		err = protocol.ErrInvalidMessage
	}
	a.begun = err == nil
	return err
}

// open makes a socket and passes its other end to the worker.
func (a *answer) open() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[1])
	a.socket = os.NewFile(uintptr(pair[0]), "request")
	a.in = protocol.NewReader(a.socket)
	a.process.client.mu.Lock()
	defer a.process.client.mu.Unlock()
	if a.process.control < 0 {
		return nil // the end of the socket says so
	}
	err = unix.Sendmsg(a.process.control, []byte{0}, unix.UnixRights(pair[1]), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err == unix.EPIPE || err == unix.ECONNRESET || err == nil {
		return nil
	}
	_ = a.socket.Close()
	return os.NewSyscallError("sendmsg", err)
}

// cancel tells the worker that the answer is no longer wanted, and kills one that goes on. Other
// queries leave it before.
func (a *answer) cancel() {
	a.process.client.mu.Lock()
	if a.deaf == nil {
		a.deaf = time.AfterFunc(obeyTime, a.abandon)
	}
	a.process.client.mu.Unlock()
	_ = a.closeWrite()
	_ = a.socket.SetReadDeadline(time.Now().Add(grace))
}

// abandon gives a worker no more requests while one of them ignores its end and may hold up the
// others. Queries that have no rows yet go to another worker, unless these come soon.
func (a *answer) abandon() {
	p := a.process
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	if a.ended || a.moved { // one that has moved is not what holds the worker up
		return
	}
	a.ignoring = true
	p.ignoring++
	for other := range p.queries {
		time.AfterFunc(moveTime, other.move)
	}
}

// obeyed notes that the request has ended.
func (a *answer) obeyed() {
	a.deaf.Stop()
	if a.long != nil {
		a.long.Stop()
	}
	a.process.client.mu.Lock()
	defer a.process.client.mu.Unlock()
	a.ended = true
	delete(a.process.queries, a)
	if a.ignoring {
		a.process.ignoring--
	}
}

// watch begins the wait of a query for its first rows, and watches how long it takes.
func (a *answer) watch() {
	if a.query == nil {
		return
	}
	c := a.process.client
	c.mu.Lock()
	defer c.mu.Unlock()
	a.waits = true
	a.process.queries[a] = true
	a.long = time.AfterFunc(longTime, a.isLong)
	if a.process.ignoring > 0 {
		time.AfterFunc(moveTime, a.move)
	}
}

// isLong is called when a query has run for longTime. If it has no rows yet, and an older query may
// hold it up, it leaves its worker, which gets no more requests, as soon as the spare can answer.
func (a *answer) isLong() {
	p, c := a.process, a.process.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.ended || a.moved {
		return
	}
	if !a.waits || a.stays || !p.hasOlder(a) {
		return
	}
	if c.shared[protocol.QueryRole] == p {
		c.keepSpare(a.query)
		if c.spare == nil || c.spare.requests > 0 {
			a.long.Reset(spareTime)
			return
		}
		c.leave(p)
	}
	a.leave()
}

// hasOlder reports whether a worker has a query that began before another one and stays there. The
// caller holds client.mu.
func (p *process) hasOlder(than *answer) bool {
	for a := range p.queries {
		if !a.moved && a.started.Before(than.started) {
			return true
		}
	}
	return false
}

// move makes a query leave a worker that another one holds up, unless its rows have come.
func (a *answer) move() {
	c := a.process.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.waits {
		a.leave()
	}
}

// leave ends the wait for rows. The caller holds client.mu.
func (a *answer) leave() {
	if a.ctx.Err() == nil {
		a.moved = true
		_ = a.socket.SetReadDeadline(time.Now())
	}
}

// endWait notes that a query waits no longer. It reports whether it goes to another worker.
func (a *answer) endWait() (moved bool) {
	c := a.process.client
	c.mu.Lock()
	defer c.mu.Unlock()
	a.waits = false
	return a.moved
}

func (a *answer) closeWrite() error {
	raw, err := a.socket.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
}

// finish ends the request. err is what ended the reading: io.EOF at the end of the answer, an
// answeredError, nil if the caller wants no more of it, or what went wrong, which finish
// explains. The worker no longer reads any file for the request when it returns.
func (a *answer) finish(err error) error {
	a.once.Do(func() {
		defer a.process.release()
		a.stop()
		a.cancel()
		a.drain()
		a.obeyed()
		if err == io.EOF {
			err = nil
		} else if err != nil {
			err = a.explain(err)
		}
		_ = a.socket.Close()
	})
	return err
}

// drain reads the rest of an answer, and kills a worker that does not end it.
func (a *answer) drain() {
	_, err := io.Copy(io.Discard, a.in.Buffered)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		a.process.kill()
		<-a.process.exited
	}
}

// explain says why an answer ended early.
func (a *answer) explain(err error) error {
	answered, isAnswer := errors.AsType[*answeredError](err)
	if isAnswer && answered.err != protocol.ErrCanceled {
		return answered.err
	}
	if cause := context.Cause(a.ctx); cause != nil {
		return cause
	}
	c, p := a.process.client, a.process
	ended := false
	select {
	case <-p.exited:
		ended = true
	case <-time.After(grace):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return protocol.ErrClosed
	case !ended:
		p.retired = true
		return fmt.Errorf("eventstore: the SQL worker does not answer: %w", err)
	case !a.begun:
		return fmt.Errorf("%w: %s", errNotBegun, endOfProcess(p))
	case p.peak > 1:
		return errWorkerLost
	}
	report := p.stderr.String()
	if p.settings.Role != protocol.QueryRole {
		c.options.Log.Warn("a worker that writes Parquet files ended", "state", p.process.State().String(), "report", crashLine(report))
		if lacksMemory(report) {
			return protocol.ErrMemory
		}
		return fmt.Errorf("eventstore: the process that writes Parquet files ended: %s", endOfProcess(p))
	}
	c.options.Log.Warn("a query ended the SQL worker", "state", p.process.State().String(), "report", crashLine(report))
	if lacksMemory(report) {
		return protocol.ErrQueryMemory
	}
	if p.killed {
		return &protocol.QueryError{Message: "the query did not end when it had to, and its process was killed", Hint: "narrow it by time"}
	}
	return &crashError{protocol.QueryError{Message: "the query ended the process that ran it: " + endOfProcess(p), Hint: "other queries and writing go on; change the query"}}
}

// lacksMemory tells whether a process reports that it did not get memory.
func lacksMemory(report string) bool {
	return slices.ContainsFunc([]string{"out of memory", "cannot allocate memory", "bad_alloc"}, func(words string) bool { return strings.Contains(report, words) })
}

// endOfProcess says how a process ended.
func endOfProcess(p *process) string {
	if line := crashLine(p.stderr.String()); line != "" {
		return line
	}
	return p.process.State().String()
}

// crashLine returns the line of a report that says why the process gave up.
func crashLine(report string) string {
	const longest = 200
	for line := range strings.Lines(report) {
		for _, begin := range []string{"panic: ", "fatal error: ", "SIG", "terminate called", "sql worker: ", "runtime: "} {
			if strings.HasPrefix(line, begin) {
				return strings.TrimSpace(strings.ToValidUTF8(line[:min(len(line), longest)], ""))
			}
		}
	}
	return ""
}

// A crashError is a QueryError that is ErrCrashed.
type crashError struct{ protocol.QueryError }

func (e *crashError) Unwrap() []error { return []error{&e.QueryError, ErrCrashed} }
