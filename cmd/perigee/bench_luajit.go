//go:build cgo && luajit

package main

import (
	"context"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/script/tuning"
)

// compilerOf returns a function that reports how LuaJIT compiles a program. Replaced
// functions do not wait there.
func compilerOf(p *tuning.Program) func(context.Context, *event.Batch, int, time.Duration) (*tuning.Compilation, error) {
	quick := *p
	quick.Waits = make(map[string]time.Duration)
	for name := range p.Waits {
		quick.Waits[name] = 0
	}
	return func(ctx context.Context, b *event.Batch, times int, long time.Duration) (*tuning.Compilation, error) {
		options, err := quick.Options()
		if err != nil {
			return nil, err
		}
		c, err := luajit.Compile(ctx, quick.Code(), options, b, times, long)
		if err != nil {
			return nil, err
		}
		told := &tuning.Compilation{Traces: c.Traces}
		for _, u := range c.Uncovered {
			told.Uncovered = append(told.Uncovered, tuning.Uncovered{
				File: u.File, Line: u.Line, Reason: u.Reason, Plain: u.Explanation, Count: u.Count, Minor: u.Minor,
			})
		}
		return told, nil
	}
}
