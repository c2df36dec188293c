//go:build cgo && luajit

package luajit

/*
#include <stdlib.h>
#include "vm.h"
*/
import "C"

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

//go:embed sandbox.lua
var prelude string

// Options are the limits of a VM, and whether it compiles.
type Options struct {
	EventTime time.Duration // for one event
	BatchTime time.Duration // for a run
	WallTime  time.Duration // for one event by the wall clock, including waits; 0 means starvedFactor times EventTime
	Memory    int           // live bytes; the heap including garbage can reach twice that
	NoJIT     bool

	NoTailCalls bool // disables tail calls of Go functions, for a Caller if ProbeTailCalls fails
}

// A VM is a Lua state with a sandbox, for one script.
type VM struct {
	c        *C.plua_vm
	watch    *Watchdog
	opts     Options
	observed observation
	spent    timeAccount // of the run, before its current piece

	mu  sync.Mutex      // guards ctx
	ctx context.Context // ends the run, or nil
}

// errNoMemory reports a memory limit that is too low even for an empty VM.
var errNoMemory = errors.New("open Lua VM: not enough memory for an empty one; raise the script's memory limit")

// Open returns an empty VM whose runs w watches.
func Open(w *Watchdog, opts Options) (*VM, error) {
	if opts.WallTime == 0 {
		opts.WallTime = starvedFactor * opts.EventTime
	}
	c := C.plua_vm_open(C.size_t(opts.Memory), boolInt(!opts.NoJIT), text(prelude), C.size_t(len(prelude)))
	if c == nil {
		return nil, errNoMemory
	}
	vm := &VM{c: c, watch: w, opts: opts}
	w.add(vm)
	return vm, nil
}

// Close frees the VM. It must not be running.
func (vm *VM) Close() {
	vm.watch.remove(vm)
	C.plua_vm_close(vm.c)
	vm.c = nil
}

// Memory returns the number of bytes that the VM holds.
func (vm *VM) Memory() int { return int(vm.c.used) }

// Broken returns the limit that broke the VM, or that will end its next run because it came too
// late for the last one; otherwise OK.
func (vm *VM) Broken() Kind {
	if vm.c.broken != 0 {
		return Kind(vm.c.broken)
	}
	return Kind(vm.load32(&vm.c.run.stop))
}

// Load compiles and runs the text of a script. The script keeps its globals; after the load, it
// cannot assign to globals. Messages quote name, as in "email.lua:12".
func (vm *VM) Load(name string, code []byte) error {
	file := C.CString(name)
	defer C.free(unsafe.Pointer(file))
	vm.begin()
	kind := C.plua_vm_load(vm.c, file, text(string(code)), C.size_t(len(code)))
	vm.end()
	return vm.fault(kind)
}

// Call calls a global function of the script without arguments and ignores its results.
func (vm *VM) Call(function string) error {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	vm.begin()
	kind := C.plua_vm_call_global(vm.c, name)
	vm.end()
	return vm.fault(kind)
}

// runTrusted runs trusted Lua code outside the sandbox, with the address of the VM's plua_run as
// its argument, so that tests and probes can act as the driver.
func (vm *VM) runTrusted(code string) error {
	chunk := C.CString("=host")
	defer C.free(unsafe.Pointer(chunk))
	vm.begin()
	C.lua_pushlightuserdata(vm.c.L, unsafe.Pointer(&vm.c.run))
	kind := C.plua_vm_run_trusted(vm.c, chunk, text(code), C.size_t(len(code)), 1, 0)
	vm.end()
	return vm.fault(kind)
}

// begin marks the start of a run.
func (vm *VM) begin() {
	vm.prepare()
	C.plua_vm_begin(vm.c)
}

// end marks the end of a run.
func (vm *VM) end() {
	C.plua_vm_end(vm.c)
}

// prepare must precede a crossing that begins a run.
func (vm *VM) prepare() {
	vm.spent.reset()
	vm.announce()
}

// announce must precede a crossing that begins or continues a run.
func (vm *VM) announce() {
	atomic.StoreUint32((*uint32)(&vm.c.run.running), C.PLUA_STARTING)
	vm.watch.wakeUp()
}

// setContext makes the next run end with ctx.
func (vm *VM) setContext(ctx context.Context) {
	vm.mu.Lock()
	vm.ctx = ctx
	vm.mu.Unlock()
}

// givenUp reports whether the context of the run has ended.
func (vm *VM) givenUp() bool {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.ctx != nil && vm.ctx.Err() != nil
}

// ReadLog passes the script's log lines since the last call to line, oldest first, with their
// place, as in "email.lua:12".
func (vm *VM) ReadLog(line func(level slog.Level, text, place string)) {
	log := &vm.c.log
	data := unsafe.Slice((*byte)(unsafe.Pointer(log.data)), int(log.len))
	for len(data) > 0 {
		head := *(*[3]int32)(unsafe.Pointer(&data[0]))
		data = data[unsafe.Sizeof(head):]
		place, text := data[:head[1]], data[head[1]:head[1]+head[2]]
		line(slog.Level(head[0]), string(text), string(place))
		data = data[head[1]+head[2]:]
	}
	if log.truncated != 0 {
		line(slog.LevelWarn, "the script logged too much; the remaining lines are omitted", "")
	}
	log.len, log.truncated = 0, 0
}

func (vm *VM) load32(p *C.uint32_t) uint32 { return atomic.LoadUint32((*uint32)(p)) }

func text(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s))) }

func boolInt(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
