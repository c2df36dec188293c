//go:build cgo && luajit

package luajit

import (
	"context"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script/pool"
)

// end makes the last act of a call, which is a function of Go, when Lua is done.
func (fn *Function) end(ctx context.Context, m *pool.Member, take func(encoded []byte) ([]any, error)) ([]any, error) {
	c := m.VM.(*caller)
	last, returned := c.Last()
	if c.Engine.Told() {
		fn.of.drain(c.Engine)
	}
	if last.Waits {
		return fn.endWaiting(ctx, m, take)
	}
	args, err := c.LastArgs()
	var results []any
	if err == nil {
		results, err = last.Call(ctx, args)
	}
	if err != nil {
		err = fn.raised(c.FindLastPlace(), err)
	}
	m.Release()
	if err != nil {
		return nil, err
	}
	if !returned || len(results) == 0 {
		return take(nil)
	}
	return fn.pass(results, take)
}

// endWaiting is end for a function that may wait: it holds no VM meanwhile, but
// Close waits for it.
func (fn *Function) endWaiting(ctx context.Context, m *pool.Member, take func(encoded []byte) ([]any, error)) ([]any, error) {
	c := m.VM.(*caller)
	last, returned := c.Last()
	args, err := c.LastArgs()
	place := c.LastPlace()
	fn.group.Extend()
	defer fn.group.Done()
	m.Release()
	var results []any
	if err == nil {
		results, err = last.Call(ctx, args)
	}
	if gone := ctx.Err(); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, fn.raised(place, err)
	}
	if !returned || len(results) == 0 {
		return take(nil)
	}
	return fn.pass(results, take)
}

// raised is an error of a function of Go as the script would have raised it.
func (fn *Function) raised(place luajit.Place, err error) error {
	return &raised{fn.of.fault(place.Fault(fn.of.code.Name, err)), err}
}

// pass has results of a function of Go taken as if Lua had returned them.
func (fn *Function) pass(results []any, take func(encoded []byte) ([]any, error)) ([]any, error) {
	v := fn.of.values.Get().(*Values)
	defer fn.of.values.Put(v)
	v.Reset()
	for _, result := range results {
		v.data = luajit.AppendReturned(v.data, result)
	}
	return take(v.data)
}
