//go:build cgo && luajit

package luajit

/*
#include "engine.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/perigeedb/perigee/event"
)

// A Host provides the Go functions that scripts can call. Several engines call its functions
// concurrently.
type Host struct {
	Functions []Function
	// File returns the text and the path of a file that a script requires.
	File func(name string) (text []byte, path string, err error)
	// Clock says that the module time reads the clock through Functions, not from the system.
	Clock bool
}

// A Function is a Go function for scripts. Its arguments and results are nil, bool, float64,
// string, json.Number, []any and map[string]any.
type Function struct {
	Name  string // "module.name"
	Waits bool   // its time does not count as the script's
	Call  func(ctx context.Context, args []any) ([]any, error)
}

// ErrMemory is returned by a function that does not wait if its results exceed
// FunctionContext.MemoryLeft. It ends the run with the memory limit.
var ErrMemory = errors.New("the results of a Go function exceed the memory limit")

// A FunctionContext is the context of a function that does not wait. It is valid only during the
// call.
type FunctionContext struct {
	context.Context
	vm    *VM
	time  time.Duration // the function's own limit, from its first call of Err; 0: the script's applies
	until time.Time     // the deadline; zero: the watchdog stops the run
}

// Err returns an error when the script's time is used up; Done does not report that.
func (c *FunctionContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.time > 0 && c.until.IsZero() {
		c.until = time.Now().Add(c.time)
	}
	if c.until.IsZero() && c.vm.load32(&c.vm.c.run.stop) != 0 || !c.until.IsZero() && !time.Now().Before(c.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// MemoryLeft returns the number of bytes that the VM may still allocate.
func (c *FunctionContext) MemoryLeft() int {
	return max(int(c.vm.c.limit)-int(c.vm.c.used), 0)
}

// names lists the functions for engine.lua, which counts them from 1. A tab marks functions that do
// not wait.
func (h *Host) names() string {
	var names strings.Builder
	for _, f := range h.Functions {
		names.WriteString(f.Name)
		if !f.Waits {
			names.WriteByte('\t')
		}
		names.WriteByte('\n')
	}
	return names.String()
}

// call calls the function that the script has requested. until is the deadline of a function that
// waits, and computing the context of any other function.
func (h *Host) call(ctx, computing context.Context, until time.Time, number int, args []any) (results []any, waits bool, err error) {
	if number > 0 {
		f := &h.Functions[number-1]
		if !f.Waits {
			results, err = f.Call(computing, args)
			return results, false, err
		}
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		results, err = f.Call(ctx, args)
		return results, true, err
	}
	if h.File == nil {
		return nil, false, errors.New("this script cannot require files")
	}
	text, path, err := h.File(args[0].(string))
	return []any{string(text), path}, false, err
}

// filesMax is the number of files that a script can require while loading before reading them
// counts as its own time. A source of code may be slow, but a script that requires more files is in
// a loop.
const filesMax = 100

// pieceShare limits the time that one piece of a run, between two calls of Go, counts for, as a
// part of the event's limit. The wall clock measures pieces, and it also advances while the thread
// does not run. The watchdog limits the length of a piece.
const pieceShare = 10

// answerKept is the size in bytes of the largest answer buffer that is kept for reuse.
const answerKept = 64 << 10

// serveBatch is serve for a run, with the documents pinned, since C points to them meanwhile.
func (e *Engine) serveBatch(ctx context.Context, in *event.Batch) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(in.Data))
	pin.Pin(unsafe.SliceData(in.Ends))
	e.serve(ctx)
}

// serve calls Go functions and resumes the script until it no longer waits. It counts the script's
// time: that of its pieces, and that of functions that do not wait.
func (e *Engine) serve(ctx context.Context) C.int {
	spent := &e.VM.spent
	start := time.Now()
	until := start.Add(e.wallTime())
	for {
		at := e.c.batch.at
		waits := e.call(ctx, start.Add(e.timeLeft()), until)
		resumed := time.Now()
		if !waits {
			spent.add(resumed.Sub(start))
		}
		e.limit(spent, resumed.Before(until))
		e.VM.announce()
		kind := C.plua_engine_resume(e.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(e.answer))), C.size_t(len(e.answer)))
		if cap(e.answer) > answerKept {
			e.answer = nil
		}
		if kind != C.PLUA_WAITING {
			return kind
		}
		start = time.Now()
		if e.c.batch.at != at {
			spent.event.Store(0)
			until = start.Add(e.wallTime())
		}
		spent.add(min(start.Sub(resumed), e.VM.opts.EventTime/pieceShare))
	}
}

// wallTime returns the wall-clock limit of an event, or of loading the script, counted from its
// first call of a Go function. The watchdog limits the time before that.
func (e *Engine) wallTime() time.Duration {
	if e.c.vm.run.event == C.PLUA_NO_EVENT {
		return starvedFactor * e.VM.opts.BatchTime
	}
	return e.VM.opts.WallTime
}

// limit stops a run whose time is used up. inTime reports that its wall-clock deadline is not over.
func (e *Engine) limit(spent *timeAccount, inTime bool) {
	switch vm := e.VM; {
	case time.Duration(spent.run.Load()) >= vm.opts.BatchTime, !inTime && vm.c.run.event == C.PLUA_NO_EVENT:
		C.plua_vm_stop(vm.c, C.PLUA_BATCH_TIME)
	case !inTime, time.Duration(spent.event.Load()) >= vm.opts.EventTime && vm.c.run.event != C.PLUA_NO_EVENT:
		vm.c.run.stop_event = vm.c.run.event
		C.plua_vm_stop(vm.c, C.PLUA_EVENT_TIME)
	}
}

// timeLeft returns the rest of the script's time.
func (e *Engine) timeLeft() time.Duration {
	spent := &e.VM.spent
	left := e.VM.opts.BatchTime - time.Duration(spent.run.Load())
	if e.c.vm.run.event != C.PLUA_NO_EVENT {
		left = min(left, e.VM.opts.EventTime-time.Duration(spent.event.Load()))
	}
	return left
}

// call answers the script's request, and reports whether the function's time does not count as the
// script's. until is the deadline of a function that waits, computed that of any other function.
func (e *Engine) call(ctx context.Context, computed, until time.Time) (waits bool) {
	request := unsafe.Slice((*byte)(unsafe.Pointer(e.c.gocall.request.data)), int(e.c.gocall.request.len))
	args, err := decodeValues(request)
	var results []any
	if err == nil {
		e.computing = FunctionContext{Context: ctx, vm: e.VM, until: computed}
		number := int(e.c.gocall.function)
		results, waits, err = e.host.call(ctx, &e.computing, until, number, args)
		if number == 0 && e.c.vm.run.event == C.PLUA_NO_EVENT && e.files < filesMax {
			e.files++
			waits = true
		}
	}
	if errors.Is(err, ErrMemory) {
		C.plua_vm_stop(e.VM.c, C.PLUA_MEMORY)
	}
	e.answer = encodeAnswer(e.answer, results, err)
	return waits
}

// ReadMeasurements passes the script's measurements since the last call to take, oldest first: a
// value, and its encoded name and labels for DecodeMeasurement, which are valid during the call.
// lost is the number of measurements that did not fit.
func (e *Engine) ReadMeasurements(take func(value float64, of []byte)) (lost int) {
	const value = 9 // the length of a double
	all := &e.c.gocall.measurements
	data := unsafe.Slice((*byte)(unsafe.Pointer(all.data)), int(all.len))
	for len(data) > 0 {
		n := 4 + int(binary.NativeEndian.Uint32(data))
		record := data[4:n]
		take(math.Float64frombits(binary.NativeEndian.Uint64(record[1:])), record[value:])
		data = data[n:]
	}
	lost = int(e.c.gocall.measurements_lost)
	all.len, e.c.gocall.measurements_lost = 0, 0
	return lost
}

// DecodeMeasurement returns the function of the module stats that was called, counted from 1, and
// its arguments name and labels.
func DecodeMeasurement(of []byte) (function int, name string, labels any, err error) {
	values, err := decodeValues(of)
	if err != nil {
		return 0, "", nil, err
	}
	return int(values[0].(float64)), values[1].(string), values[2], nil
}
