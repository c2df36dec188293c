//go:build !cgo || !luajit

package main

import (
	"context"

	webconsole "github.com/perigeedb/perigee/console"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/event"
)

// scriptMeter returns nil, because gopher-lua cannot be measured by line.
func scriptMeter() func(context.Context, *engine.Stages, *event.Batch) (*webconsole.Measurement, error) {
	return nil
}
