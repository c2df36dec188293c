//go:build linux

package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// A process is the parent's view of a script worker. Only one goroutine at a time may use it,
// except for Progress.
type process struct {
	process  *child.Process
	fd       int // of process.Socket
	memory   *memory
	rest     *memory // the memory after the pieces of an answer
	name     string  // of the loaded script
	number   uint64  // of the last request
	batches  int     // number of batches that it was given
	text     []byte  // of the last answer
	death    error   // the reason why it has ended
	unused   bool    // it ended before it received the last request
	measured time.Time
	resident int // bytes of private memory when it was last measured

	progress atomic.Uint64 // number of requests << 1; the last bit is set while one runs
}

// tick is the interval at which the time of a running worker is checked.
const tick = 10 * time.Millisecond

// startWorker starts a worker that can read codeFile, unless that is empty.
func startWorker(memory layout, codeFile string) (*process, error) {
	file, err := createMemory(memory)
	if err != nil {
		return nil, fmt.Errorf("start script worker: %w", err)
	}
	defer func() { _ = file.Close() }()
	mapped, err := mapMemory(file.Fd(), memory)
	if err != nil {
		return nil, fmt.Errorf("start script worker: %w", err)
	}
	started, err := start(file, memory, codeFile)
	if err != nil {
		mapped.unmap()
		return nil, err
	}
	p := &process{process: started, fd: int(started.Socket.Fd()), memory: mapped}
	wait := unix.NsecToTimeval(int64(tick))
	if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		p.Close()
		return nil, fmt.Errorf("start script worker: %w", err)
	}
	return p, nil
}

// Close ends the process. It implements pool.VM.
func (p *process) Close() {
	p.kill()
	<-p.process.Exited()
	p.process.Stderr.Finish()
	_ = p.process.Socket.Close()
	p.memory.unmap()
}

// kill ends the process and any processes that it has started.
func (p *process) kill() {
	_ = unix.Kill(-p.process.Pid, unix.SIGKILL)
	_ = p.process.Kill()
}

// Broken implements pool.VM.
func (p *process) Broken() bool { return p.death != nil }

// Memory implements pool.VM. It returns the private memory of the process, measured from time to
// time.
func (p *process) Memory() int {
	if now := time.Now(); now.Sub(p.measured) > time.Second {
		resident, _ := p.process.Memory()
		p.measured, p.resident = now, int(resident)
	}
	return p.resident
}

// Progress implements pool.VM.
func (p *process) Progress() (uint32, bool) {
	n := p.progress.Load()
	return uint32(n >> 1), n&1 == 1
}

func (p *process) setRunning(running bool) {
	n := p.progress.Load() &^ 1
	if running {
		n += 3
	}
	p.progress.Store(n)
}

// An exitError describes how a worker ended.
type exitError struct {
	cause  error // the parent's reason, if the parent ended it
	state  *os.ProcessState
	report string // its output to stderr
	crash  string // the line of the report that gives the reason of a crash, or ""
}

func (e *exitError) Error() string {
	if e.cause != nil {
		return e.cause.Error()
	}
	status, ok := e.state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return fmt.Sprintf("the script's process was ended by signal %s (%v)", unix.SignalName(status.Signal()), status.Signal())
	case ok && status.Exited():
		text := fmt.Sprintf("the script ended its process with exit code %d", status.ExitStatus())
		if e.crash != "" {
			text += ": " + e.crash
		}
		return text
	}
	return "the script's process ended"
}

// killed reports whether another process ended the worker.
func (e *exitError) killed() bool {
	status, ok := e.state.Sys().(syscall.WaitStatus)
	return e.cause == nil && ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (e *exitError) Unwrap() error { return e.cause }

// fail ends the process because of an invalid answer or a failure that it reported.
func (p *process) fail(cause error) error {
	p.kill()
	return p.exitError(cause)
}

// exitError waits for the end of the process and describes it.
func (p *process) exitError(cause error) error {
	const grace = time.Second // until the process has ended after it closed the socket
	select {
	case <-p.process.Exited():
	case <-time.After(grace):
		if cause == nil {
			cause = errors.New("the script's process closed its connection")
		}
		p.kill()
		<-p.process.Exited()
	}
	p.process.Stderr.Finish()
	p.death = &exitError{cause: cause, state: p.process.State(), report: p.process.Stderr.String(), crash: p.process.Stderr.CrashLine()}
	return p.death
}

// A budget limits a request by the worker's CPU time, and by ten times as much wall-clock time, for
// a worker that sleeps.
type budget struct {
	processor time.Duration
	subject   string // named in the error
}

const wallFactor = 10

var errHang = errors.New("time limit")

// A server answers the calls of a worker. waited is time that does not count towards the worker's
// limit. An error means that the call was invalid.
type server func(text []byte) (reply []byte, waited time.Duration, err error)

// A request is a request to a worker.
type request struct {
	message
	budget    budget
	serve     server
	writeRest func()                      // writes the parts that the worker does not need to start; may be nil
	piece     func(answer *message) error // handles all answers but the last
}

// ask sends a request and waits for its answer.
func (p *process) ask(ctx context.Context, q *request) (message, error) {
	p.number++
	m := q.message
	m.number = p.number
	p.rest = p.memory
	p.setRunning(true)
	defer p.setRunning(false)
	clock := p.startClock()
	if err := send(p.fd, m); err != nil {
		p.unused = true
		return m, p.exitError(nil)
	}
	if q.writeRest != nil {
		q.writeRest()
		if err := send(p.fd, message{kind: restWritten, number: p.number}); err != nil {
			return m, p.exitError(nil)
		}
	}
	for {
		answer, err := p.receive()
		switch {
		case err == nil && answer.number != p.number:
			return answer, p.fail(fmt.Errorf("%w: answer %d to request %d", errFrame, answer.number, p.number))
		case err == nil && answer.kind == call:
			waited, err := p.serveCall(ctx, answer, q.serve)
			if err != nil {
				return answer, err
			}
			clock.started = clock.started.Add(waited)
		case err == nil && answer.kind == ran && answer.d&isPiece != 0 && q.piece != nil:
			if err = p.readText(answer); err == nil {
				err = q.piece(&answer)
			}
			if err != nil {
				return answer, err
			}
		case err == nil:
			return answer, p.readText(answer)
		case err != errNothing:
			return answer, p.exitError(nil)
		}
		if err := ctx.Err(); err != nil {
			_ = p.fail(err)
			return answer, err
		}
		if err := clock.check(q.budget); err != nil {
			return answer, p.fail(err)
		}
	}
}

// serveCall answers a call of the worker.
func (p *process) serveCall(ctx context.Context, m message, serve server) (waited time.Duration, err error) {
	if err := p.readText(m); err != nil {
		return 0, err
	}
	p.setRunning(false)
	reply, waited, err := serve(p.text)
	if err := ctx.Err(); err != nil {
		_ = p.fail(err)
		return 0, err
	}
	if err != nil {
		return 0, p.fail(err)
	}
	if len(reply) > len(p.rest.text) {
		return 0, p.fail(fmt.Errorf("%w: no room for the results of a call", errFrame))
	}
	n := copy(p.rest.text, reply)
	p.setRunning(true)
	if err := send(p.fd, message{kind: results, number: p.number, a: uint64(n)}); err != nil {
		return 0, p.exitError(nil)
	}
	return waited, nil
}

// readText copies the text of an answer.
func (p *process) readText(m message) error {
	if m.a > uint64(len(p.rest.text)) {
		return p.fail(fmt.Errorf("%w: a text of %d bytes", errFrame, m.a))
	}
	p.text = append(p.text[:0], p.rest.text[:m.a]...)
	return nil
}

// errNothing means that no answer came within a tick.
var errNothing = errors.New("no answer yet")

func (p *process) receive() (m message, err error) {
	var b [messageBytes]byte
	n, err := unix.Read(p.fd, b[:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return m, errNothing
	case err != nil || n != messageBytes:
		return m, errFrame
	}
	m.decode(&b)
	return m, nil
}

// A clock measures the time that a worker uses for a request.
type clock struct {
	process *process
	started time.Time
	used    time.Duration // CPU time before the request
}

func (p *process) startClock() *clock {
	return &clock{process: p, started: time.Now(), used: -1}
}

func (c *clock) check(b budget) error {
	wall := time.Since(c.started)
	used := c.process.processorTime()
	if c.used < 0 {
		c.used = max(0, used-wall)
	}
	if used-c.used > b.processor || wall > wallFactor*b.processor {
		return fmt.Errorf("%w: %s took longer than its limit allows; its process was ended by signal SIGKILL", errHang, b.subject)
	}
	return nil
}

// processorTime returns the CPU time that the process has used.
func (p *process) processorTime() time.Duration {
	const wholeProcess = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if unix.ClockGettime(int32(^p.process.Pid<<3|wholeProcess), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
