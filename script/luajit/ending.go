//go:build cgo

package luajit

import (
	"context"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script/pool"
)

// end makes the last act of a call, which is a function of Go. Lua is done with the
// call, so one that may wait holds no VM meanwhile.
func (fn *Function) end(ctx context.Context, m *pool.Member, take func(encoded []byte) ([]any, error)) ([]any, error) {
	c := m.VM.(*caller)
	last, returned := c.Last()
	args, err := c.LastArgs()
	if c.Engine.Told() {
		fn.of.drain(c.Engine)
	}
	if last.Waits {
		return fn.endWithout(ctx, m, returned, args, err, take)
	}
	var results []any
	if err == nil {
		results, err = last.Call(ctx, args)
	}
	if err != nil {
		err = fn.raised(c.FindLastPlace(), err)
	}
	m.Release()
	return fn.ended(returned, results, err, take)
}

// endWithout is end for a function that may wait.
func (fn *Function) endWithout(ctx context.Context, m *pool.Member, returned bool, args []any, err error, take func(encoded []byte) ([]any, error)) ([]any, error) {
	c := m.VM.(*caller)
	last, _ := c.Last()
	place := c.LastPlace()
	m.Release()
	var results []any
	if err == nil {
		results, err = last.Call(ctx, args)
	}
	if gone := ctx.Err(); gone != nil {
		return nil, gone
	}
	if err != nil {
		err = fn.raised(place, err)
	}
	return fn.ended(returned, results, err, take)
}

// raised is an error of a function of Go as the script would have raised it.
func (fn *Function) raised(place luajit.Place, err error) error {
	return &raised{fn.of.fault(place.Fault(fn.of.code.Name, err)), err}
}

// ended is what comes of a call that ended so.
func (fn *Function) ended(returned bool, results []any, err error, take func(encoded []byte) ([]any, error)) ([]any, error) {
	if err != nil {
		return nil, err
	}
	if !returned || len(results) == 0 {
		return take(nil)
	}
	v := fn.of.values.Get().(*Values)
	defer fn.of.values.Put(v)
	v.Reset()
	for _, result := range results {
		v.data = luajit.AppendReturned(v.data, result)
	}
	return take(v.data)
}
