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

// A Host is what scripts can call. Its functions are called by several engines at
// the same time.
type Host struct {
	Functions []Function
	// File returns the text and the path of a file that a script requires.
	File func(name string) (text []byte, path string, err error)
}

// A Function is one of Go. Its arguments and results are nil, bool, float64,
// string, json.Number, []any and map[string]any.
type Function struct {
	Name  string // "module.name"
	Waits bool   // its time is not the script's
	Call  func(ctx context.Context, args []any) ([]any, error)
}

// ErrMemory is returned by a function that does not wait, when its results exceed
// FunctionContext.MemoryLeft. It ends the run with the memory limit.
var ErrMemory = errors.New("the results of a Go function exceed the memory limit")

// A FunctionContext is the context of a function that does not wait. It is valid during the
// call.
type FunctionContext struct {
	context.Context
	vm    *VM
	time  time.Duration // the function's own time, from its first question on; 0 if it has the script's
	until time.Time     // when its time is over; zero where the watchdog says so
}

// Err ends with the script's time, which Done does not.
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

// MemoryLeft returns how many bytes the VM may still take.
func (c *FunctionContext) MemoryLeft() int {
	return max(int(c.vm.c.limit)-int(c.vm.c.used), 0)
}

// names lists the functions for engine.lua, which counts them from 1. A tab marks
// those that do not wait.
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

// call calls the function that the script waits for, until the time `until`. computing is the context of
// one that does not wait.
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
		return nil, false, errors.New("there are no files to require")
	}
	text, path, err := h.File(args[0].(string))
	return []any{string(text), path}, false, err
}

// filesMax is how many files a script can require while it loads before reading them is its own
// time: a host of code may be slow, and a script that requires more is in a loop.
const filesMax = 100

// pieceShare bounds what one piece of a run between two calls counts for, as a part
// of the event's limit. A piece is measured by the clock, which also runs while the
// thread does not; how long a piece may be the watchdog sees to.
const pieceShare = 10

// answerKept is the largest answer whose memory is used again.
const answerKept = 64 << 10

// serveBatch is serve for a run, whose documents C points to in between.
func (e *Engine) serveBatch(ctx context.Context, in *event.Batch) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(in.Data))
	pin.Pin(unsafe.SliceData(in.Ends))
	e.serve(ctx)
}

// serve calls functions of Go and resumes the script until it waits no more. It
// keeps account of the script's time: that of its pieces and of functions that do
// not wait.
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

// wallTime is how long an event may take by the clock from its first call of a function of Go
// on, or the script that is being loaded. What it computes before is bounded by the watchdog.
func (e *Engine) wallTime() time.Duration {
	if e.c.vm.run.event == C.PLUA_NO_EVENT {
		return starvedFactor * e.VM.opts.BatchTime
	}
	return e.VM.opts.WallTime
}

// limit stops a run whose time is used up. inTime says that its time by the clock is not.
func (e *Engine) limit(spent *timeAccount, inTime bool) {
	switch vm := e.VM; {
	case time.Duration(spent.run.Load()) >= vm.opts.BatchTime, !inTime && vm.c.run.event == C.PLUA_NO_EVENT:
		C.plua_vm_stop(vm.c, C.PLUA_BATCH_TIME)
	case !inTime, time.Duration(spent.event.Load()) >= vm.opts.EventTime && vm.c.run.event != C.PLUA_NO_EVENT:
		vm.c.run.stop_event = vm.c.run.event
		C.plua_vm_stop(vm.c, C.PLUA_EVENT_TIME)
	}
}

// timeLeft is what the script has left of its time.
func (e *Engine) timeLeft() time.Duration {
	spent := &e.VM.spent
	left := e.VM.opts.BatchTime - time.Duration(spent.run.Load())
	if e.c.vm.run.event != C.PLUA_NO_EVENT {
		left = min(left, e.VM.opts.EventTime-time.Duration(spent.event.Load()))
	}
	return left
}

// call answers the request that the script has left, and tells whether the function
// may have waited: until then, or one that only computes until computed.
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

// ReadMeasurements hands over what the script measured since the last call, oldest first: a
// value, and of what in the form of Measurement, valid during the call. lost counts
// what found no room.
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

// DecodeMeasurement reads which function of the module stats was called, from 1, and the
// name and the labels that it was given.
func DecodeMeasurement(of []byte) (function int, name string, labels any, err error) {
	values, err := decodeValues(of)
	if err != nil {
		return 0, "", nil, err
	}
	return int(values[0].(float64)), values[1].(string), values[2], nil
}
