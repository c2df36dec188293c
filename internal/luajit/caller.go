//go:build cgo && luajit

package luajit

/*
#include <stdlib.h>
#include "caller.h"

// start and resume call plua_caller_start and plua_caller_resume, see batch. Functions without a
// result cross slightly faster.
static void start(uintptr_t c, uint32_t function, uint32_t event, const char *args, size_t len) {
	((plua_caller *)c)->kind = plua_caller_start((plua_caller *)c, function, event, args, len);
}

static void resume(uintptr_t c, uint32_t thread, uint32_t event, int64_t spent, int precise, const char *answer, size_t len) {
	((plua_caller *)c)->kind = plua_caller_resume((plua_caller *)c, thread, event, spent, precise, answer, len);
}
*/
import "C"

import (
	"context"
	"runtime"
	"time"
	"unsafe"
)

// A Caller is an engine whose script is a set of functions. Many calls can be in progress in it:
// one runs, and the others wait for Go functions. Only one goroutine at a time may use it.
type Caller struct {
	Engine *Engine
	c      *C.plua_caller
	events uint32
	pin    runtime.Pinner // pins the engine, which C refers to
	_      [128]byte      // keeps other processors' data off its cache lines
}

// A Call is a call in progress. The zero value is a call that has not begun.
type Call struct {
	thread, event, asked uint32
	spent                int64
	until                time.Time // the wall-clock deadline; zero before it first waits
}

// NewCaller returns a caller without a script.
func NewCaller(w *Watchdog, opts Options, host *Host) (*Caller, error) {
	opts.EventTime = min(opts.EventTime, opts.BatchTime)
	e, err := NewEngine(w, opts, Setup{Host: host, Direct: true})
	if err != nil {
		return nil, err
	}
	*e.c.main = 0 // no main function is needed
	c := C.plua_caller_open(e.c, C.int64_t(opts.EventTime))
	if c == nil {
		e.Close()
		return nil, errNoMemory
	}
	caller := &Caller{Engine: e, c: c}
	caller.pin.Pin(e)
	e.c.gocall.owner = unsafe.Pointer(e)
	e.c.gocall.tail_calls = boolInt(!opts.NoTailCalls)
	return caller, nil
}

// Close frees the caller and its waiting calls.
func (c *Caller) Close() {
	c.Engine.Close()
	C.plua_caller_close(c.c)
	c.pin.Unpin()
}

// Bind binds a global function of the script to a number. It returns false if the script has no
// function with that name.
func (c *Caller) Bind(number int, name string) bool {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.plua_caller_bind(c.c, C.uint32_t(number), text) != 0
}

// Results of a crossing other than a fault.
const (
	Waits    Kind = Kind(C.PLUA_WAITING & 0xffffffff)   // for a Go function
	Unbound  Kind = Kind(C.PLUA_UNBOUND & 0xffffffff)   // no function is bound to the number yet
	TailCall Kind = Kind(C.PLUA_TAIL_CALL & 0xffffffff) // the call ends with a Go function, see Caller.TailCall
)

// Start begins a call with encoded values, preceded by the letter V, or without arguments. ctx is
// for Go functions that do not wait.
func (c *Caller) Start(ctx context.Context, call *Call, function int, args []byte) Kind {
	if c.events++; c.events == C.PLUA_NO_EVENT {
		c.events = 0
	}
	*call = Call{event: c.events}
	e := c.Engine
	e.ctx, e.cause = ctx, nil
	e.VM.prepare()
	C.start(C.uintptr_t(uintptr(unsafe.Pointer(c.c))), C.uint32_t(function), C.uint32_t(call.event),
		(*C.char)(unsafe.Pointer(unsafe.SliceData(args))), C.size_t(len(args)))
	return c.crossed(call)
}

// preciseFrom is the number of waits after which a call's time is measured more exactly than to a
// few milliseconds, which costs more.
const preciseFrom = 16

// Resume continues a call that waited for a function, with the function's results or error.
func (c *Caller) Resume(ctx context.Context, call *Call, results []any, failed error) Kind {
	e, vm := c.Engine, c.Engine.VM
	e.ctx, e.cause = ctx, nil
	e.answer = encodeAnswer(e.answer, results, failed)
	if !call.until.IsZero() && !time.Now().Before(call.until) {
		call.spent = max(call.spent, int64(vm.opts.EventTime)) // ends the call
	}
	vm.spent.set(call.spent)
	vm.announce()
	C.resume(C.uintptr_t(uintptr(unsafe.Pointer(c.c))), C.uint32_t(call.thread), C.uint32_t(call.event),
		C.int64_t(call.spent), boolInt(call.asked > preciseFrom),
		(*C.char)(unsafe.Pointer(unsafe.SliceData(e.answer))), C.size_t(len(e.answer)))
	if cap(e.answer) > answerKept {
		e.answer = nil
	}
	return c.crossed(call)
}

// set loads the account of another call. Like reset, it avoids needless stores.
func (a *timeAccount) set(spent int64) {
	if a.event.Load() != spent {
		a.run.Store(spent)
		a.event.Store(spent)
	}
}

func (c *Caller) crossed(call *Call) Kind {
	kind := c.c.kind
	if kind == C.PLUA_WAITING {
		call.thread, call.spent = uint32(c.c.thread), int64(c.c.spent)
		call.asked++
	}
	return Kind(uint32(kind))
}

// Drop abandons a waiting call.
func (c *Caller) Drop(call *Call) { C.plua_caller_drop(c.c, C.uint32_t(call.thread)) }

// A Request is the Go function for which a call waits, with its arguments.
type Request struct {
	host     *Host
	function int
	args     []any
	err      error
	took     time.Duration // time that counts as the call's own
	until    time.Time
}

// Request reads the request of a waiting call.
func (c *Caller) Request(call *Call) (r Request) {
	e := c.Engine
	if call.until.IsZero() {
		call.until = time.Now().Add(e.VM.opts.WallTime)
	}
	r = Request{host: e.host, function: int(e.c.gocall.function), until: call.until}
	r.args, r.err = decodeValues(unsafe.Slice((*byte)(unsafe.Pointer(e.c.gocall.request.data)), int(e.c.gocall.request.len)))
	return r
}

// Call calls the function, until the wall-clock deadline of the script's call.
func (r *Request) Call(ctx context.Context) ([]any, error) {
	if r.err != nil {
		return nil, r.err
	}
	began := time.Now()
	results, _, err := r.host.call(ctx, ctx, r.until, r.function, r.args)
	if r.function == 0 {
		r.took = time.Since(began)
	}
	return results, err
}

// Charge adds the time to read a required file to the call's own time. Other functions wait, so
// their time does not count.
func (c *Call) Charge(r *Request) { c.spent += int64(r.took) }

// Cause returns the error of the last Go function that the script called directly in the crossing,
// or nil.
func (c *Caller) Cause() error { return c.Engine.cause }

// Results returns the encoded results of a call. They are valid until the next crossing.
func (c *Caller) Results() []byte {
	request := &c.Engine.c.gocall.request
	return unsafe.Slice((*byte)(unsafe.Pointer(request.data)), int(request.len))
}

// An Activity is an observation of a VM from outside, for Progress.
type Activity struct {
	runs  uint32
	spent int64
}

// Progress returns the number of runs that the VM has begun, and whether it has used CPU time since
// last: it has not if it waits, even for a processor. last is the caller's previous observation,
// which Progress updates. It may be called at any time before Close.
func (vm *VM) Progress(last *Activity) (runs uint32, computes bool) {
	now := Activity{vm.load32(&vm.c.run.number), 0}
	if vm.load32(&vm.c.run.running) == C.PLUA_RUNNING {
		now.spent = int64(C.plua_vm_cpu_time(vm.c))
		computes = now.runs != last.runs || now.spent != last.spent
	}
	*last = now
	return now.runs, computes
}
