//go:build cgo

package luajit

/*
#include <stdlib.h>
#include "frontend.h"
*/
import "C"

import (
	_ "embed"
	"unsafe"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

//go:embed frontend.lua
var frontend string

// An Engine is a VM with documents: it runs batches through a script's main.
// Like its VM it is used by one goroutine at a time.
type Engine struct {
	VM      *VM
	c       *C.front
	extract []*document.Extractor // one for each sink, nil where no columns are asked for
	native  **C.struct_extractor  // the same, in C
}

// NewEngine makes an engine without a script. output is the limit for what comes
// of one batch; columns has an entry for each sink.
func NewEngine(w *Watchdog, opts Options, output int, columns [][]event.Column) (*Engine, error) {
	vm, err := Open(w, opts)
	if err != nil {
		return nil, err
	}
	c := C.front_open(vm.c, (*C.doc_api)(document.Functions()), C.size_t(opts.Memory), C.size_t(output),
		boolInt(!opts.NoJIT), text(frontend), C.size_t(len(frontend)))
	if c == nil {
		vm.Close()
		return nil, errNoRoom
	}
	e := &Engine{VM: vm, c: c, extract: make([]*document.Extractor, len(columns))}
	e.native = (**C.struct_extractor)(C.calloc(C.size_t(len(columns)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	native := unsafe.Slice(e.native, len(columns))
	for i, spec := range columns {
		if spec != nil {
			e.extract[i] = document.NewExtractor(spec)
			native[i] = (*C.struct_extractor)(e.extract[i].Native())
		}
	}
	return e, nil
}

// Close frees the engine and its VM.
func (e *Engine) Close() {
	e.VM.Close()
	C.front_close(e.c)
	C.free(unsafe.Pointer(e.native))
}

// Load compiles the text, runs it once and looks for main.
func (e *Engine) Load(name string, code []byte) error {
	if err := e.VM.Load(name, code); err != nil {
		return err
	}
	return e.VM.fault(C.front_main(e.c))
}

// Extractor is that of sink i, nil where it asked for no columns.
func (e *Engine) Extractor(i int) *document.Extractor { return e.extract[i] }

// An Outcome is how a run ended. What it points to is overwritten by the next run.
type Outcome struct {
	At      int    // the first event that did not run
	Limit   Kind   // why the run ended early; OK when all events ran
	Dropped int    // events for which the script wanted nothing
	Data    []byte // documents, back to back
	Ends    []uint32
	From    []uint32 // the events that they came from
	engine  *Engine
}

// Run passes the events of a batch from `first` on through main, in one crossing.
func (e *Engine) Run(in *event.Batch, first int) Outcome {
	if first >= in.Len() {
		return Outcome{At: in.Len(), engine: e}
	}
	e.VM.enter()
	defer e.VM.leave()
	kind := C.front_batch(e.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(in.Data))),
		(*C.uint32_t)(unsafe.SliceData(in.Ends)), C.uint32_t(in.Len()), C.uint32_t(first),
		e.native, C.uint32_t(len(e.extract)))
	e.VM.leave()
	n := int(e.c.out_count)
	return Outcome{
		At: int(e.c.run.at), Limit: Kind(kind), Dropped: int(e.c.run.dropped),
		Data:   unsafe.Slice((*byte)(unsafe.Pointer(e.c.out.data)), int(e.c.out.len)),
		Ends:   unsafe.Slice((*uint32)(e.c.out_ends), n),
		From:   unsafe.Slice((*uint32)(e.c.out_from), n),
		engine: e,
	}
}

// Cancel ends the run that is under way, or the next one, as its time limit does.
// The engine is of no use after that. It is safe while a run is under way.
func (e *Engine) Cancel() { C.pg_vm_stop(e.VM.c, C.PG_BATCH_TIME) }

// A Dead is an event that failed in a run.
type Dead struct {
	Event  int
	Fault  document.Fault // why it is no document, at Offset; 0 when the script failed
	Offset int
	Script *Fault
}

// Dead returns the events that failed, in their order.
func (o Outcome) Dead() []Dead {
	c := o.engine.c
	dead := make([]Dead, 0, c.dead_count)
	texts := unsafe.Slice((*byte)(unsafe.Pointer(c.texts.data)), int(c.texts.len))
	for _, d := range unsafe.Slice(c.dead, int(c.dead_count)) {
		one := Dead{Event: int(d.event), Fault: document.Fault(d.fault), Offset: int(d.offset)}
		if d.fault == 0 {
			message := texts[d.text:][:d.message_len]
			one.Script = &Fault{
				Kind: Kind(d.kind), Line: int(d.line), Message: string(message),
				Traceback: string(texts[d.text+d.message_len:][:d.traceback_len]),
			}
		}
		dead = append(dead, one)
	}
	return dead
}

// Fault is what went wrong last.
func (vm *VM) Fault() *Fault {
	f := &vm.c.fault
	return &Fault{
		Kind: Kind(f.kind), Line: int(f.line),
		Message:   C.GoStringN(&f.message[0], C.int(f.message_len)),
		Traceback: C.GoStringN(&f.traceback[0], C.int(f.traceback_len)),
	}
}
