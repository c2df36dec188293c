package main

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A state is a gopher-lua VM with the script in it.
type state struct {
	*lua.LState
	hello lua.LValue
}

// A maker creates states from the script, which it compiles once.
type maker struct {
	body  body
	proto *lua.FunctionProto
}

func newMaker(b body) *maker {
	chunk, err := parse.Parse(strings.NewReader(scriptText), "report.lua")
	must(err)
	proto, err := lua.Compile(chunk, "report.lua")
	must(err)
	return &maker{body: b, proto: proto}
}

func (m *maker) make() *state {
	s := &state{LState: lua.NewState(lua.Options{CallStackSize: 64, RegistrySize: 1024, RegistryMaxSize: 20 << 10})}
	s.SetGlobal("goSayHello", s.NewFunction(func(*lua.LState) int {
		m.body.hello()
		return 0
	}))
	s.Push(s.NewFunctionFromProto(m.proto))
	must(s.PCall(0, lua.MultRet, nil))
	s.hello = s.GetGlobal(functionName)
	return s
}

// call calls the script, within the context's timeout if it has one.
func (s *state) call(ctx context.Context) error {
	if ctx.Done() == nil {
		s.Push(s.hello)
		return s.PCall(0, 0, nil)
	}
	s.SetContext(ctx)
	s.Push(s.hello)
	err := s.PCall(0, 0, nil)
	s.RemoveContext()
	return err
}

// A statePool is a pool of states.
type statePool interface {
	get() *state
	put(*state)
}

// invoker returns a function that makes one call on a state of the pool.
func (m *maker) invoker(p statePool) func() error {
	return m.body.wrapCall(func(ctx context.Context) error {
		s := p.get()
		err := s.call(ctx)
		p.put(s)
		return err
	})
}

// newEachCall creates a state for each call.
type newEachCall struct{ *maker }

func (p newEachCall) get() *state  { return p.make() }
func (p newEachCall) put(s *state) { s.Close() }

// syncPool pools states in a sync.Pool.
type syncPool struct{ sync.Pool }

func newSyncPool(m *maker) *syncPool {
	return &syncPool{sync.Pool{New: func() any { return m.make() }}}
}

func (p *syncPool) get() *state  { return p.Get().(*state) }
func (p *syncPool) put(s *state) { p.Put(s) }

// unboundedPool keeps some states, and creates and closes further ones on demand.
type unboundedPool struct {
	*maker
	idle chan *state
}

func (p *unboundedPool) get() *state {
	select {
	case s := <-p.idle:
		return s
	default:
		return p.make()
	}
}

func (p *unboundedPool) put(s *state) {
	select {
	case p.idle <- s:
	default:
		s.Close()
	}
}

// boundedPool keeps some states, creates further ones up to a maximum, and then blocks.
type boundedPool struct {
	*maker
	idle  chan *state // of size max
	core  int64
	max   int64
	count atomic.Int64
}

func newBoundedPool(m *maker, core, max int) *boundedPool {
	return &boundedPool{maker: m, idle: make(chan *state, max), core: int64(core), max: int64(max)}
}

func (p *boundedPool) get() *state {
	select {
	case s := <-p.idle:
		return s
	default:
	}
	for n := p.count.Load(); n < p.max; n = p.count.Load() {
		if p.count.CompareAndSwap(n, n+1) {
			return p.make()
		}
	}
	return <-p.idle
}

func (p *boundedPool) put(s *state) {
	if p.core < p.max && int64(len(p.idle)) >= p.core {
		p.count.Add(-1)
		s.Close()
		return
	}
	p.idle <- s
}

// fixedPool is a channel filled with states.
type fixedPool chan *state

func newFixedPool(m *maker, size int) fixedPool {
	p := make(fixedPool, size)
	for range size {
		p <- m.make()
	}
	return p
}

func (p fixedPool) get() *state  { return <-p }
func (p fixedPool) put(s *state) { p <- s }

// lifoPool returns the state that was used last.
type lifoPool struct {
	mu   sync.Mutex
	free sync.Cond
	idle []*state
}

func newLIFOPool(m *maker, size int) *lifoPool {
	p := new(lifoPool)
	p.free.L = &p.mu
	for range size {
		p.idle = append(p.idle, m.make())
	}
	return p
}

func (p *lifoPool) get() *state {
	p.mu.Lock()
	for len(p.idle) == 0 {
		p.free.Wait()
	}
	last := len(p.idle) - 1
	s := p.idle[last]
	p.idle = p.idle[:last]
	p.mu.Unlock()
	return s
}

func (p *lifoPool) put(s *state) {
	p.mu.Lock()
	p.idle = append(p.idle, s)
	p.mu.Unlock()
	p.free.Signal()
}
