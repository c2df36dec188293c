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

// A maker makes states from the script, compiled once.
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

// call makes one call, below the limit of its context if it has one.
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

// A theirPool lends states.
type theirPool interface {
	get() *state
	put(*state)
}

// invoker makes calls through a pool of theirs.
func (m *maker) invoker(p theirPool) func() error {
	return m.body.around(func(ctx context.Context) error {
		s := p.get()
		err := s.call(ctx)
		p.put(s)
		return err
	})
}

// none makes a state for each call.
type none struct{ *maker }

func (p none) get() *state  { return p.make() }
func (p none) put(s *state) { s.Close() }

// synced is a sync.Pool.
type synced struct{ sync.Pool }

func newSynced(m *maker) *synced { return &synced{sync.Pool{New: func() any { return m.make() }}} }

func (p *synced) get() *state  { return p.Get().(*state) }
func (p *synced) put(s *state) { p.Put(s) }

// unlimited keeps a core, and makes and closes what more is wanted.
type unlimited struct {
	*maker
	idle chan *state
}

func (p *unlimited) get() *state {
	select {
	case s := <-p.idle:
		return s
	default:
		return p.make()
	}
}

func (p *unlimited) put(s *state) {
	select {
	case p.idle <- s:
	default:
		s.Close()
	}
}

// blocking keeps a core, makes more up to a maximum, and then lets callers wait.
type blocking struct {
	*maker
	idle  chan *state // of size max
	core  int64
	max   int64
	count atomic.Int64
}

func newBlocking(m *maker, core, max int) *blocking {
	return &blocking{maker: m, idle: make(chan *state, max), core: int64(core), max: int64(max)}
}

func (p *blocking) get() *state {
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

func (p *blocking) put(s *state) {
	if p.core < p.max && int64(len(p.idle)) >= p.core {
		p.count.Add(-1)
		s.Close()
		return
	}
	p.idle <- s
}

// fixed is a channel that is filled beforehand.
type fixed chan *state

func newFixed(m *maker, size int) fixed {
	p := make(fixed, size)
	for range size {
		p <- m.make()
	}
	return p
}

func (p fixed) get() *state  { return <-p }
func (p fixed) put(s *state) { p <- s }

// lifo lends the state that was used last.
type lifo struct {
	mu   sync.Mutex
	free sync.Cond
	idle []*state
}

func newLIFO(m *maker, size int) *lifo {
	p := new(lifo)
	p.free.L = &p.mu
	for range size {
		p.idle = append(p.idle, m.make())
	}
	return p
}

func (p *lifo) get() *state {
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

func (p *lifo) put(s *state) {
	p.mu.Lock()
	p.idle = append(p.idle, s)
	p.mu.Unlock()
	p.free.Signal()
}
