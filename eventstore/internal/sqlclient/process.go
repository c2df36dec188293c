//go:build linux

package sqlclient

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

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/child"
)

// A process is the parent's side of a worker.
type process struct {
	client   *Client
	settings protocol.Settings
	process  *child.Process
	control  int // descriptor of process.Socket, which passes the sockets of requests; -1 after its end

	functions []protocol.Function // as in settings
	exited    chan struct{}       // closed when the process has ended

	started time.Time
	mapped  int64 // bytes mapped after its first request

	// Protected by client.mu.
	requests      int // running requests
	requestsTotal int // requests since its start
	peak          int // maximum of requests since it was last 0
	idle          *time.Timer
	retired       bool // gets no more requests
	killed        bool
	queries       map[*answer]bool // running queries
	unresponsive  int              // requests that ignore their cancellation
}

// start starts a worker. The caller holds client.mu.
func (c *Client) start(r protocol.Role, alone bool) (*process, error) {
	p := &process{client: c, started: time.Now(), exited: make(chan struct{}), queries: map[*answer]bool{}, settings: protocol.Settings{Folder: c.options.Folder, Number: c.started, Role: r, Memory: writerMemory, Threads: c.options.Threads, File: c.options.File, Functions: c.functions}}
	p.functions = c.functions
	switch {
	case r == protocol.QueryRole:
		p.settings.Memory = max(c.options.Memory, queriesMemoryMin)
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
	p.process, err = child.Start(child.Command{Name: "sql-worker", Env: p.settings.Environment(text)})
	if err != nil {
		return err
	}
	p.control = int(p.process.Socket.Fd())
	go func() {
		<-p.process.Exited()
		p.process.Stderr.Finish()
		_ = os.RemoveAll(p.settings.Temp())
		p.client.forget(p) // before a caller learns of the end and asks again
		close(p.exited)
	}()
	return nil
}

// forget removes a process that has ended.
func (c *Client) forget(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = p.process.Socket.Close()
	p.control, p.retired = -1, true
	if c.shared[p.settings.Role] == p {
		delete(c.shared, p.settings.Role)
	}
	if c.spare == p {
		c.spare = nil
	}
	delete(c.others, p)
}

// retire stops sending requests to a worker, which ends after its current ones. The caller
// holds client.mu.
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

// kill kills a process.
func (p *process) kill() {
	p.client.mu.Lock()
	p.killed, p.retired = true, true
	p.client.mu.Unlock()
	_ = p.process.Kill()
}

// end kills a process and waits for its end.
func (p *process) end() {
	p.kill()
	<-p.exited
}

// acquire returns a worker for a request. The caller returns it with release.
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
	case p == nil || p.retired || p.unresponsive > 0:
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

// next returns a new shared worker for a request's role: the spare, which is then replaced,
// or a fresh worker. The caller holds c.mu.
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

// leftNice is the nice value of a worker that its queries have left.
const leftNice = 10

// leave stops sending requests to a worker. Its current requests continue at a lower
// priority, because some may have blocked others. The caller holds c.mu.
func (c *Client) leave(p *process) {
	if c.shared[p.settings.Role] == p {
		delete(c.shared, p.settings.Role)
	}
	c.others[p] = true
	if p.settings.Role == protocol.QueryRole && p.control >= 0 {
		child.LowerPriority(strconv.Itoa(p.process.Pid), leftNice)
	}
}

// take counts a new request of the worker. The caller holds client.mu.
func (p *process) take() {
	if p.requests++; p.requests == 1 {
		p.peak = 0
	}
	p.peak = max(p.peak, p.requests)
	p.requestsTotal++
	if p.idle != nil {
		p.idle.Stop()
	}
}

// keepSpare keeps a spare worker beside the shared one, ready to take over. The spare runs a
// query over the same data, so that it answers the next query at once. The caller holds c.mu.
func (c *Client) keepSpare(q *protocol.Query) {
	if p := c.spare; p != nil && p.requests == 0 && p.idle != nil {
		p.idle.Reset(idleTime)
	}
	if c.closed || c.spare != nil || c.queryWorkers() >= queryWorkersMax {
		return
	}
	p, err := c.start(protocol.QueryRole, false)
	if err != nil {
		return // the next query that needs a worker reports the error
	}
	c.spare = p
	p.take()
	go p.warm(&protocol.Query{Version: q.Version, Ends: q.Ends, SQL: "SELECT 1", Limits: q.Limits})
}

// warm runs a query on an acquired worker. The query may fail, since the log may have moved
// on.
func (p *process) warm(q *protocol.Query) {
	limited, stop := protocol.WithTimeLimit(context.Background(), catalog.DefaultQueryTime)
	defer stop()
	a, err := p.send(limited, requestOf(q), sendNothing)
	if err == nil {
		_, err = io.Copy(io.Discard, a.in.Buffered)
		_ = a.finish(err)
	}
}

// sendNothing is the rest of a request without further data.
func sendNothing(*protocol.Writer) error { return nil }

// queryWorkers returns the number of query workers. The caller holds c.mu.
func (c *Client) queryWorkers() (n int) {
	for _, p := range c.processes() {
		if p.settings.Role == protocol.QueryRole {
			n++
		}
	}
	return n
}

// release returns a worker. An idle worker ends after a while.
func (p *process) release() {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mapped := p.process.Memory()
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

// retireFrom is the growth of mapped memory after which a worker is retired. Allocators keep
// memory that they once mapped, and it counts against the limit.
const retireFrom = protocol.MemorySlack / 2

// An answer is the parent's side of a running request.
type answer struct {
	process     *process
	query       *protocol.Query                                              // nil for other requests
	stays       bool                                                         // see request
	fetch       func(ctx context.Context, files []protocol.NeededFile) error // see request
	started     time.Time
	ctx         context.Context
	socket      *os.File
	in          *protocol.Reader
	stop        func() bool // stops canceling the request with ctx
	begun       bool        // the worker has read the request
	once        sync.Once
	cancelTimer *time.Timer // see cancelWait
	long        *time.Timer // see longTime

	// Protected by client.mu.
	waits        bool // waits for its first rows
	moved        bool // moved to another worker
	unresponsive bool // ignores its cancellation
	ended        bool
}

// errWorkerLost reports that another request ended the worker. errMoved reports that another
// request blocks it.
var (
	errWorkerLost = errors.New("another query ended the worker")
	errMoved      = errors.New("another query holds up the worker")
)

// errNotBegun reports that the worker ended before it read the request.
var errNotBegun = errors.New("eventstore: the SQL worker ended before it read the request")

// beginTries is the number of workers to try until one reads the request.
const beginTries = 3

// ask sends a request to a worker and waits until the worker has begun it. If a worker was
// killed while idle, or while so busy that it had not read the request, ask tries another.
// The caller reads the answer and calls finish.
func (c *Client) ask(ctx context.Context, q *protocol.Request, alone bool, rest func(*protocol.Writer) error) (a *answer, err error) {
	for range beginTries {
		if a, err = c.send(ctx, q, alone, rest); !errors.Is(err, errNotBegun) {
			return a, err
		}
	}
	return nil, err
}

// send sends a request to a worker and waits until the worker has read it. It returns
// errMoved if another query blocks the worker.
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

// send sends a request to a worker acquired for it.
func (p *process) send(ctx context.Context, q *protocol.Request, rest func(*protocol.Writer) error) (*answer, error) {
	a := &answer{process: p, query: q.Query, stays: q.Stays, fetch: q.Fetch, started: time.Now(), ctx: ctx}
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
		} else if !hasEnded(err) {
			err = &requestError{err}
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil || hasEnded(err) {
		err = a.awaitBegin() // returns the reason if the worker has ended
	}
	if err != nil && a.endWait() {
		go func() { _ = a.finish(nil) }() // the worker may take up to grace
		return nil, errMoved
	}
	if err != nil {
		return nil, a.finish(err)
	}
	return a, nil
}

// hasEnded reports whether a write failed because the worker has ended.
func hasEnded(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// A requestError is the reason that the data of a request cannot be sent, which is no fault of
// the worker.
type requestError struct{ err error }

func (e *requestError) Error() string { return e.err.Error() }

// awaitBegin waits until the worker has read the request.
func (a *answer) awaitBegin() error {
	kind, _, err := a.in.Read()
	if err == nil && kind != protocol.BegunMessage {
		err = protocol.ErrInvalidMessage
	}
	a.begun = err == nil
	return err
}

// open creates a socket pair and passes one end to the worker.
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
		return nil // reading the socket reports the end of the worker
	}
	err = unix.Sendmsg(a.process.control, []byte{0}, unix.UnixRights(pair[1]), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err == unix.EPIPE || err == unix.ECONNRESET || err == nil {
		return nil
	}
	_ = a.socket.Close()
	return os.NewSyscallError("sendmsg", err)
}

// cancel tells the worker to cancel the request. If the worker ignores that, other queries
// leave it, and then it is killed.
func (a *answer) cancel() {
	a.process.client.mu.Lock()
	if a.cancelTimer == nil {
		a.cancelTimer = time.AfterFunc(cancelWait, a.abandon)
	}
	a.process.client.mu.Unlock()
	_ = a.closeWrite()
	_ = a.socket.SetReadDeadline(time.Now().Add(grace))
}

// abandon stops sending requests to a worker while one of its requests ignores its
// cancellation and may block others. Queries without rows move to another worker, unless
// their rows arrive soon.
func (a *answer) abandon() {
	p := a.process
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	if a.ended || a.moved { // an answer that has moved does not block the worker
		return
	}
	a.unresponsive = true
	p.unresponsive++
	for other := range p.queries {
		time.AfterFunc(moveTime, other.move)
	}
}

// markEnded records that the request has ended.
func (a *answer) markEnded() {
	a.cancelTimer.Stop()
	if a.long != nil {
		a.long.Stop()
	}
	a.process.client.mu.Lock()
	defer a.process.client.mu.Unlock()
	a.ended = true
	delete(a.process.queries, a)
	if a.unresponsive {
		a.process.unresponsive--
	}
}

// watch starts a query's wait for its first rows and the timer for it.
func (a *answer) watch() {
	if a.query == nil {
		return
	}
	c := a.process.client
	c.mu.Lock()
	defer c.mu.Unlock()
	a.waits = true
	a.process.queries[a] = true
	a.long = time.AfterFunc(longTime, a.onLongWait)
	if a.process.unresponsive > 0 {
		time.AfterFunc(moveTime, a.move)
	}
}

// onLongWait runs when a query has run for longTime. If the query has no rows yet and an older
// query may be blocking it, it leaves its worker as soon as the spare is ready. The worker
// then gets no more requests.
func (a *answer) onLongWait() {
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

// hasOlder reports whether a worker has a query that is older than another one and stays
// there. The caller holds client.mu.
func (p *process) hasOlder(than *answer) bool {
	for a := range p.queries {
		if !a.moved && a.started.Before(than.started) {
			return true
		}
	}
	return false
}

// move makes a query leave a blocked worker, unless its rows have arrived.
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

// endWait records that a query no longer waits. It reports whether the query moves to another
// worker.
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

// finish ends the request. err is the reason that reading ended: io.EOF at the end of the
// answer, an answeredError, nil if the caller needs no more of it, or a failure, which finish
// explains. When it returns, the worker reads no more files for the request.
func (a *answer) finish(err error) error {
	a.once.Do(func() {
		defer a.process.release()
		a.stop()
		a.cancel()
		a.drain()
		a.markEnded()
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

// explain returns an error with the reason that an answer ended early.
func (a *answer) explain(err error) error {
	answered, isAnswer := errors.AsType[*answeredError](err)
	if isAnswer && answered.err != protocol.ErrCanceled {
		return answered.err
	}
	if cause := context.Cause(a.ctx); cause != nil {
		return cause
	}
	if request, ok := errors.AsType[*requestError](err); ok {
		return request.err
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
	report := p.process.Stderr.String()
	if p.settings.Role != protocol.QueryRole {
		c.options.Log.Warn("a worker that writes Parquet files ended", "state", p.process.State().String(), "report", p.crashLine())
		if lacksMemory(report) {
			return protocol.ErrMemory
		}
		return fmt.Errorf("eventstore: the process that writes Parquet files ended: %s", endOfProcess(p))
	}
	c.options.Log.Warn("a query ended the SQL worker", "state", p.process.State().String(), "report", p.crashLine())
	if lacksMemory(report) {
		return protocol.ErrQueryMemory
	}
	if p.killed {
		return &event.Fault{Message: "the query ignored its time limit or cancellation, so its process was killed", Hint: "narrow it by time"}
	}
	return &crashError{event.Fault{Message: "the query ended the process that ran it: " + endOfProcess(p), Hint: "other queries and writing go on; change the query"}}
}

// lacksMemory reports whether a process's output reports a failed allocation.
func lacksMemory(report string) bool {
	return slices.ContainsFunc([]string{"out of memory", "cannot allocate memory", "bad_alloc"}, func(words string) bool { return strings.Contains(report, words) })
}

// endOfProcess describes how a process ended.
func endOfProcess(p *process) string {
	if line := p.crashLine(); line != "" {
		return line
	}
	return p.process.State().String()
}

// crashLine returns the line of the process's output that gives the reason of a crash, or "".
func (p *process) crashLine() string {
	return p.process.Stderr.CrashLine("terminate called", "sql worker: ", "runtime: ")
}

// A crashError is an event.Fault that wraps ErrCrashed.
type crashError struct{ event.Fault }

func (e *crashError) Unwrap() []error { return []error{&e.Fault, ErrCrashed} }
