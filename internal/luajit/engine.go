//go:build cgo && luajit

package luajit

/*
#include <stdlib.h>
#include "engine.h"

// batch calls plua_batch_run. cgo checks a pointer argument for Go pointers in the memory that it
// points to, but not a number. A function without a result crosses slightly faster.
static void batch(uintptr_t f, const char *data, const uint32_t *ends, uint32_t count, uint32_t first) {
	plua_batch_run((plua_engine *)f, data, ends, count, first);
}

// batch_attached is batch for a run on sessions.
static void batch_attached(uintptr_t f, const char *data, const uint32_t *ends, uint32_t count, uint32_t first,
	void *session, void *const *others, size_t others_count, double time, int timers, int retry) {
	plua_extension_attach((plua_engine *)f, session, others, others_count, time, timers, retry);
	batch(f, data, ends, count, first);
}
*/
import "C"

import (
	"cmp"
	"context"
	_ "embed"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	_ "github.com/perigeedb/perigee/internal/luajit/extension" // extension.h
)

//go:embed engine.lua
var frontend string

// Setup describes how an engine treats its script.
type Setup struct {
	Output       int // limit on the bytes that a batch returns
	Sinks        []Sink
	Main         string // the function to run; "" means main
	ReturnsValue bool   // it returns values, not events
	Host         *Host  // nil: the script can call no Go functions
	Direct       bool   // C calls functions that do not wait, without a yield

	Extension Extension // adds modules; nil: none
	Timer     bool      // the script must define a function timer
	// CollectBeforeCalls is for tests: it collects all garbage before every call of a function of
	// the extension, so that a call whose arguments nothing keeps alive reads freed memory.
	CollectBeforeCalls bool
}

// An Extension adds modules to engines. Their functions are in C. It is safe for concurrent use.
type Extension interface {
	Modules() []string // names for require
	// Source returns Lua code that returns function(ffi, host), which returns the modules by name.
	// extension.c creates host.
	Source() string
	// Open returns a plua_extension of extension/extension.h for one engine. The engine closes it
	// and then calls release.
	Open() (extension unsafe.Pointer, release func(), err error)
}

// A Sink is an engine's view of a sink.
type Sink struct {
	Name        string
	Columns     []event.Column // nil: it reads no columns
	Routed      bool           // it gets only rows that are routed to it
	ColumnsOnly bool           // it reads columns, but no documents
}

// An Engine is a VM with documents: it runs batches through a script's main. Only one goroutine at
// a time may use it.
type Engine struct {
	VM        *VM
	c         *C.plua_engine
	host      *Host
	answer    []byte                // the last one, reused
	outcome   Outcome               // of the last run
	to        []uint64              // Outcome.To, reused
	extract   []*document.Extractor // by sink; nil: it reads no columns
	native    **C.struct_extractor  // the same, in C
	ctx       context.Context       // for functions that C calls directly
	cause     error                 // the error of the last of them
	release   func()                // of the extension
	computing FunctionContext       // of the function being called
	attaches  bool                  // the extension attaches the sessions of batches
	reads     []unsafe.Pointer      // sessions of the last batch to read, reused
	files     int                   // number of files that the script has required while loading
	_         [128]byte             // keeps other processors' data off its cache lines
}

// NewEngine returns an engine without a script.
func NewEngine(w *Watchdog, opts Options, setup Setup) (*Engine, error) {
	vm, err := Open(w, opts)
	if err != nil {
		return nil, err
	}
	e := &Engine{VM: vm, host: cmp.Or(setup.Host, &Host{}), release: func() {}}
	if err := e.open(opts, setup); err != nil {
		vm.Close()
		return nil, err
	}
	e.addSinks(setup.Sinks)
	return e, nil
}

func (e *Engine) open(opts Options, setup Setup) error {
	main, functions := C.CString(cmp.Or(setup.Main, "main")), C.CString(e.host.names())
	sinks := C.CString(names(setup.Sinks))
	defer C.free(unsafe.Pointer(main))
	defer C.free(unsafe.Pointer(functions))
	defer C.free(unsafe.Pointer(sinks))
	c := C.plua_engine_setup{
		memory: C.size_t(opts.Memory), output: C.size_t(setup.Output), compiled: boolInt(!opts.NoJIT),
		value: boolInt(setup.ReturnsValue), main: main, functions: functions, sinks: sinks,
		direct: boolInt(setup.Direct), timer: boolInt(setup.Timer), clock: boolInt(e.host.Clock), event_ms: C.int64_t(opts.EventTime.Milliseconds()),
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	if setup.Extension != nil {
		extension, release, err := setup.Extension.Open()
		if err != nil {
			return err
		}
		e.release = release
		c.extension, c.extension_collect = (*C.plua_extension)(extension), boolInt(setup.CollectBeforeCalls)
		modules, source := strings.Join(setup.Extension.Modules(), "\n")+"\x00", setup.Extension.Source()
		pin.Pin(unsafe.StringData(modules))
		pin.Pin(unsafe.StringData(source))
		c.extension_modules = text(modules)
		c.extension_source, c.extension_source_len = text(source), C.size_t(len(source))
	}
	e.c = C.plua_engine_open(e.VM.c, (*C.doc_api)(document.Functions()), &c, text(frontend), C.size_t(len(frontend)))
	if e.c == nil {
		e.release()
		return errNoMemory
	}
	e.attaches = C.plua_extension_attaches(e.c) != 0
	return nil
}

// names returns the names of the sinks, one per line.
func names(sinks []Sink) string {
	var all strings.Builder
	for _, sink := range sinks {
		all.WriteString(sink.Name + "\n")
	}
	return all.String()
}

func (e *Engine) addSinks(sinks []Sink) {
	e.extract = make([]*document.Extractor, len(sinks))
	e.native = (**C.struct_extractor)(C.calloc(C.size_t(len(sinks)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	native := unsafe.Slice(e.native, len(sinks))
	for i, sink := range sinks {
		if sink.Columns != nil {
			e.extract[i] = document.NewExtractor(sink.Columns)
		}
		if sink.Columns != nil && !sink.Routed { // a routed sink never gets all rows
			native[i] = (*C.struct_extractor)(e.extract[i].Native())
		}
	}
	e.c.out.extractors, e.c.out.extractor_count = e.native, C.uint32_t(len(sinks))
	e.c.out.columns_only = boolInt(OmitsDocuments(sinks))
}

// OmitsDocuments reports whether the engine can omit documents, because the only sink reads none. It then
// extracts columns even if a limit ended the run.
func OmitsDocuments(sinks []Sink) bool {
	return len(sinks) == 1 && sinks[0].ColumnsOnly && sinks[0].Columns != nil && !sinks[0].Routed
}

// Close frees the engine and its VM.
func (e *Engine) Close() {
	e.VM.Close()
	C.plua_engine_close(e.c)
	e.release()
	C.free(unsafe.Pointer(e.native))
}

// Load compiles the text, runs it once and looks up main.
func (e *Engine) Load(ctx context.Context, name string, code []byte) error {
	file := C.CString(name)
	defer C.free(unsafe.Pointer(file))
	e.ctx = ctx
	e.VM.prepare()
	kind := C.plua_engine_load(e.c, file, text(string(code)), C.size_t(len(code)))
	if kind == C.PLUA_WAITING {
		kind = e.serve(ctx)
	}
	return e.VM.fault(kind)
}

// Extractor returns the extractor of sink i; nil if the sink reads no columns.
func (e *Engine) Extractor(i int) *document.Extractor { return e.extract[i] }

// An Outcome is the result of a run. The next run overwrites it and the memory that it refers to.
type Outcome struct {
	Ran     int    // the first event that did not run
	Limit   Kind   // why the run ended early; OK if all events ran
	Dropped int    // events for which main returned nil
	Data    []byte // documents, back to back
	Ends    []uint32
	From    []uint32 // by document: its event
	// To contains the sinks to which the script routed each document, a bit per sink, 0 if it did
	// not route the document. It is empty if the script routed none: then, if all events ran, the
	// columns of sinks that are not Routed have been extracted.
	To                []uint64
	ColumnsIncomplete bool // memory ran out before all rows had columns
	engine            *Engine
}

// Run runs the events of a batch, from first on, through main. It takes one crossing, and one more
// for each call of a Go function. When ctx ends, the run ends as at its time limit, and the engine
// is broken.
func (e *Engine) Run(ctx context.Context, in *event.Batch, first int) *Outcome {
	e.RunRows(ctx, in, first)
	return e.Outcome()
}

// RunRows is a fast path of Run for row-only output, which Rows returns. plain reports whether all
// events ran and returned only unrouted rows: no failed events, logs or measurements.
func (e *Engine) RunRows(ctx context.Context, in *event.Batch, first int) (plain bool) {
	ends := ctx.Done() != nil
	if ends {
		e.VM.setContext(ctx)
	}
	e.VM.prepare()
	if e.attaches && (in.State != nil || in.Timers || len(in.Reads) > 0) {
		e.runAttached(in, first)
	} else {
		C.batch(C.uintptr_t(uintptr(unsafe.Pointer(e.c))), (*C.char)(unsafe.Pointer(unsafe.SliceData(in.Data))),
			(*C.uint32_t)(unsafe.SliceData(in.Ends)), C.uint32_t(len(in.Ends)), C.uint32_t(first))
	}
	if e.c.batch.kind == C.PLUA_WAITING {
		e.serveBatch(ctx, in)
	}
	if ends {
		e.VM.setContext(context.Background())
	}
	return e.c.batch.rows_only != 0
}

// runAttached crosses into C with the sessions of the batch's states.
func (e *Engine) runAttached(in *event.Batch, first int) {
	var session unsafe.Pointer
	var now float64
	if in.State != nil {
		session = in.State.Session()
	}
	switch {
	case !in.Time.IsZero():
		now = float64(in.Time.UnixMicro()) / 1e6
	case in.State != nil || in.Timers: // time stands still in the runs that change a state
		now = float64(time.Now().UnixMicro()) / 1e6
	}
	e.reads = e.reads[:0]
	for _, s := range in.Reads {
		var read unsafe.Pointer
		if s != nil {
			read = s.Session()
		}
		e.reads = append(e.reads, read)
	}
	C.batch_attached(C.uintptr_t(uintptr(unsafe.Pointer(e.c))), (*C.char)(unsafe.Pointer(unsafe.SliceData(in.Data))),
		(*C.uint32_t)(unsafe.SliceData(in.Ends)), C.uint32_t(len(in.Ends)), C.uint32_t(first),
		session, unsafe.SliceData(e.reads), C.size_t(len(e.reads)), C.double(now), boolInt(in.Timers), boolInt(in.Retry))
}

// Rows returns the rows of the last run, valid until the next run, and the number of dropped
// events. See Outcome.
func (e *Engine) Rows() (data []byte, ends, from []uint32, dropped int) {
	n := int(e.c.out.count)
	return unsafe.Slice((*byte)(unsafe.Pointer(e.c.out.docs.data)), int(e.c.out.docs.len)),
		unsafe.Slice((*uint32)(e.c.out.ends), n), unsafe.Slice((*uint32)(e.c.out.from), n), int(e.c.batch.dropped)
}

// Outcome returns the result of the last run.
func (e *Engine) Outcome() *Outcome {
	o := &e.outcome
	o.Ran, o.Limit, o.engine, o.To = int(e.c.batch.at), Kind(e.c.batch.kind), e, nil
	o.Data, o.Ends, o.From, o.Dropped = e.Rows()
	o.ColumnsIncomplete = e.c.out.extract_failed != 0
	if e.c.out.route_count != 0 {
		o.To = e.routes(len(o.Ends))
	}
	return o
}

// routes returns Outcome.To for all rows.
func (e *Engine) routes(rows int) []uint64 {
	e.to = slices.Grow(e.to[:0], rows)[:rows]
	clear(e.to)
	for _, route := range unsafe.Slice(e.c.out.routes, int(e.c.out.route_count)) {
		e.to[route.row] = uint64(route.sinks)
	}
	return e.to
}

// HasEffects reports whether ReadLog or ReadMeasurements have anything to return.
func (e *Engine) HasEffects() bool {
	log := &e.VM.c.log
	return log.len != 0 || log.truncated != 0 || e.c.gocall.measurements.len != 0 || e.c.gocall.measurements_lost != 0
}

// A DeadEvent is an event that failed in a run.
type DeadEvent struct {
	Event       int
	ParseError  document.Code // why the event is not a valid document, at Offset; 0 if the script failed
	Offset      int
	ScriptError *Error
}

// DeadEvents returns the failed events in order.
func (o *Outcome) DeadEvents() []DeadEvent {
	if o.engine.c.out.dead_count == 0 {
		return nil
	}
	return o.deadEvents()
}

func (o *Outcome) deadEvents() []DeadEvent {
	c := o.engine.c
	dead := make([]DeadEvent, 0, c.out.dead_count)
	texts := unsafe.Slice((*byte)(unsafe.Pointer(c.out.texts.data)), int(c.out.texts.len))
	for _, d := range unsafe.Slice(c.out.dead, int(c.out.dead_count)) {
		one := DeadEvent{Event: int(d.event), ParseError: document.Code(d.parse_error), Offset: int(d.offset)}
		if d.parse_error == 0 {
			message := texts[d.text:][:d.message_len]
			one.ScriptError = &Error{
				Kind: Kind(d.kind), Line: int(d.line), Message: string(message),
				Traceback: string(texts[d.text+d.message_len:][:d.traceback_len]),
				File:      string(texts[d.text+d.message_len+d.traceback_len:][:d.file_len]),
			}
		}
		dead = append(dead, one)
	}
	return dead
}

// LastError returns the VM's last error.
func (vm *VM) LastError() *Error {
	f := &vm.c.error
	return &Error{
		Kind: Kind(f.kind), Line: int(f.line), File: C.GoString(&f.file[0]),
		Message:   C.GoStringN(&f.message[0], C.int(f.message_len)),
		Traceback: C.GoStringN(&f.traceback[0], C.int(f.traceback_len)),
	}
}
