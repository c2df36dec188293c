//go:build cgo && luajit

package luajit

import (
	"context"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script/pool"
)

// endTailCall makes the last act of a call, which is a function of Go, when Lua is done.
func (fn *Function) endTailCall(ctx context.Context, m *pool.Member, take func(encoded []byte) ([]any, error)) ([]any, error) {
	c := m.VM.(*caller)
	last, returned := c.TailCall()
	if c.Engine.HasEffects() {
		fn.of.readEffects(c.Engine)
	}
	if last.Waits {
		return fn.endWaitingTailCall(ctx, m, take)
	}
	args, err := c.TailCallArgs()
	var results []any
	if err == nil {
		results, err = last.Call(c.TailCallContext(ctx), args)
	}
	if err != nil {
		err = fn.goError(c.LocateTailCall(), err)
	}
	m.Release()
	if err != nil {
		return nil, err
	}
	if !returned || len(results) == 0 {
		return take(nil)
	}
	return fn.returnResults(results, take)
}

// endWaitingTailCall is end for a function that may wait: it holds no VM meanwhile, but
// Close waits for it.
func (fn *Function) endWaitingTailCall(ctx context.Context, m *pool.Member, take func(encoded []byte) ([]any, error)) ([]any, error) {
	c := m.VM.(*caller)
	last, returned := c.TailCall()
	args, err := c.TailCallArgs()
	place := c.TailCallPlace()
	fn.group.Extend()
	defer fn.group.Done()
	m.Release()
	var results []any
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, fn.of.opts.Limits.WallTime)
		results, err = last.Call(limited, args)
		cancel()
	}
	if gone := ctx.Err(); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, fn.goError(place, err)
	}
	if !returned || len(results) == 0 {
		return take(nil)
	}
	return fn.returnResults(results, take)
}

// goError is an error of a function of Go as the script would have raised it.
func (fn *Function) goError(place luajit.Place, err error) error {
	return &functionError{fn.of.scriptError(place.Error(fn.of.code.Name, err)), err}
}

// returnResults has results of a function of Go taken as if Lua had returned them.
func (fn *Function) returnResults(results []any, take func(encoded []byte) ([]any, error)) ([]any, error) {
	v := fn.of.values.Get().(*Values)
	defer fn.of.values.Put(v)
	v.Reset()
	for _, result := range results {
		v.data = luajit.AppendReturned(v.data, result)
	}
	return take(v.data)
}
