package gopherlua

import (
	"context"
	"sync/atomic"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// A machine is a VM with the script loaded. One goroutine uses it at a time.
type machine struct {
	*program
	deadline *deadline
	state    *lua.LState
	main     *lua.LFunction
	env      *lua.LTable // of the script
	globals  *lua.LTable // behind it
	loaded   bool        // globals are closed

	member *pool.Member  // while it runs
	runs   atomic.Uint32 // counts events
	waits  atomic.Bool   // for a function of Go

	ctx      context.Context // of the run, for functions of Go
	required map[string]lua.LValue
	files    map[string]bool // of the script that were required

	docMeta, bigMeta, listMeta, routedMeta *lua.LTable
	null                                   *lua.LUserData
	protecting                             []*lua.LState // threads that are in pcall
	broken                                 bool          // gopher-lua has failed itself
	life                                   *life         // of the event that runs
	writing                                []*lua.LTable // tables that are being encoded
}

// Sizes of the VM's stacks: they grow on demand up to these.
const (
	callsMax     = 2_000
	registerMax  = 1 << 18
	registerSize = 1 << 10
	registerStep = 1 << 13
)

// newMachine opens a VM and runs the top level of the script.
func newMachine(ctx context.Context, p *program) (*machine, error) {
	m := &machine{program: p, deadline: newDeadline(), ctx: ctx, files: make(map[string]bool)}
	m.state = lua.NewState(lua.Options{
		SkipOpenLibs: true, CallStackSize: callsMax, MinimizeStackMemory: true,
		RegistrySize: registerSize, RegistryMaxSize: registerMax, RegistryGrowStep: registerStep,
	})
	m.state.SetContext(m.deadline.ctx)
	m.env = m.sandbox()
	m.deadline.stopWith(ctx)
	defer m.deadline.unfollow()
	m.deadline.start(time.Now().Add(p.opts.Limits.BatchTime), time.Now().Add(script.WallFactor*p.opts.Limits.BatchTime))
	fn := m.state.NewFunctionFromProto(p.proto)
	fn.Env = m.env
	m.state.Push(fn)
	err := m.state.PCall(0, 0, nil)
	if late := m.deadline.stop(); late {
		defer m.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, m.lateError(m.scriptError(err), p.opts.Limits, true)
	}
	if err == nil {
		err = m.findMain()
	}
	if err != nil {
		defer m.Close()
		return nil, m.scriptError(err)
	}
	m.loaded = true
	return m, nil
}

func (m *machine) findMain() error {
	switch main := m.globals.RawGetString(m.call).(type) {
	case *lua.LFunction:
		m.main = main
		return nil
	case *lua.LNilType:
		return &script.Error{Script: m.file, Message: "no function " + m.call, Hint: "define it as a global: function " + m.call + "(event) … return event end"}
	default:
		return &script.Error{Script: m.file, Message: m.call + " is a " + main.Type().String() + ", not a function", Hint: "function " + m.call + "(event) … return event end"}
	}
}

// A maker opens the machines of a program.
type maker struct{ *program }

// Open implements pool.Maker.
func (p maker) Open(ctx context.Context) (pool.VM, error) {
	m, err := newMachine(ctx, p.program)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Close implements pool.Maker.
func (maker) Close() {}

// size is the approximate memory of a new machine. Nothing counts what a script adds.
const size = 256 << 10

// Memory implements pool.VM.
func (*machine) Memory() int { return size }

// Broken implements pool.VM.
func (m *machine) Broken() bool { return m.broken }

// Progress implements pool.VM.
func (m *machine) Progress() (runs uint32, computes bool) { return m.runs.Load(), !m.waits.Load() }

// Close implements pool.VM.
func (m *machine) Close() {
	m.deadline.cancel()
	m.state.Close()
}

// callMain calls main for event i of a run and appends what it returns.
func (m *machine) callMain(r *run, i int) error {
	m.runs.Add(1)
	m.life = &life{}
	defer func() { m.life.ended = true }()
	m.writing = m.writing[:0]
	l := m.state
	top := l.GetTop()
	defer l.SetTop(top)
	l.Push(m.main)
	l.Push(m.proxy(r.doc.Root(), m.life))
	if err := l.PCall(1, lua.MultRet, nil); err != nil {
		m.broken = m.broken || isPanic(err)
		return m.scriptError(err)
	}
	if m.opts.ReturnsValue {
		l.SetTop(top + 1)
		return m.emitDocument(r, i, l.Get(-1))
	}
	if l.GetTop() == top {
		return m.newError("main returned nothing: end it with return event, or with return nil to drop the event")
	}
	return m.emit(r, i, top+1)
}

// emit appends the values that main returned, on the stack from index at on.
func (m *machine) emit(r *run, i, at int) error {
	r.to = 0
	for ; at <= m.state.GetTop(); at++ {
		if err := m.emitValue(r, i, m.state.Get(at)); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) emitValue(r *run, i int, v lua.LValue) error {
	switch kind := m.kindOf(v); kind {
	case "nil":
		return nil
	case "object":
		return m.emitDocument(r, i, v)
	case "mark":
		return m.emitRouted(r, i, routedValueOf(v))
	case "array":
		return m.elements(v, func(n int, element lua.LValue) error {
			switch kind := m.elementKind(element); kind {
			case "nil":
				return nil
			case "object":
				return m.emitDocument(r, i, element)
			case "mark":
				return m.emitRouted(r, i, routedValueOf(element))
			default:
				return m.newError("main returned a list whose element %d is %s: every element must be an event", n, article(kind))
			}
		})
	default:
		return m.newError("main returned %s: return the event, a table, a list of them, or nil to drop the event", article(kind))
	}
}

func (m *machine) emitDocument(r *run, i int, v lua.LValue) error {
	rows := r.result.Rows()
	start := len(rows.Data)
	var err error
	if rows.Data, err = m.appendJSON(rows.Data, v); err != nil {
		return err
	}
	if err := pure.CheckDepth(rows.Data[start:]); err != nil {
		return err
	}
	return r.result.EndDocument(i, r.to)
}

// kindOf returns the kind of a value that main returned: nil, object, array, mark, or
// the name of its type. A new table without entries is an empty array.
func (m *machine) kindOf(v lua.LValue) string {
	switch v := v.(type) {
	case *lua.LTable:
		if !m.isMarked(v) && v.MaxN() == 0 && !isEmpty(v) {
			return "object"
		}
		return "array"
	case *lua.LUserData:
		switch of := v.Value.(type) {
		case *proxy:
			if of.life.ended {
				return "document kept after its call of main has ended"
			}
			if of.container.Kind() == pure.Object {
				return "object"
			}
			return "array"
		case *big:
			return "number"
		case *routedValue:
			return "mark"
		}
		return "null"
	}
	return v.Type().String()
}

// elementKind is kindOf for an element of a list, where {} is an event.
func (m *machine) elementKind(v lua.LValue) string {
	if t, ok := v.(*lua.LTable); ok && isEmpty(t) && !m.isMarked(t) {
		return "object"
	}
	return m.kindOf(v)
}

// elements calls f for each element of an array or a list.
func (m *machine) elements(v lua.LValue, f func(n int, element lua.LValue) error) error {
	if t, ok := v.(*lua.LTable); ok {
		shape, err := m.shapeOf(t)
		if err != nil {
			return err
		}
		for n := 1; n <= shape.length; n++ {
			if err := f(n, t.RawGetInt(n)); err != nil {
				return err
			}
		}
		return nil
	}
	p, err := m.alive(v.(*lua.LUserData).Value.(*proxy))
	if err != nil {
		return err
	}
	for n := 1; n <= p.container.Len(); n++ {
		element := m.fromJSON(p.container.At(float64(n)), p.life)
		if p.container.At(float64(n)).Kind == pure.Null {
			element = m.null
		}
		if err := f(n, element); err != nil {
			return err
		}
	}
	return nil
}

func article(noun string) string {
	switch noun {
	case "object", "array":
		return "an " + noun
	case "nil", "null":
		return noun
	}
	return "a " + noun
}
