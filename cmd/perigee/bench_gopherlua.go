//go:build !cgo || !luajit

package main

import (
	"context"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script/tuning"
)

// compilerOf returns nil, because gopher-lua has no compiler.
func compilerOf(*tuning.Program) func(context.Context, *event.Batch, int, time.Duration) (*tuning.Compilation, error) {
	return nil
}
