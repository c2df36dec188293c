//go:build !linux

package isolate

import (
	"context"
	"errors"

	"github.com/perigeedb/perigee/script"
)

// A Launcher starts script workers. It needs Linux.
type Launcher struct{ languages []script.Language }

func isWorker() bool { return false }

func serve([]script.Language) {}

func (l *Launcher) loader(string) func(context.Context, script.Code, script.Options) (script.Script, error) {
	return func(context.Context, script.Code, script.Options) (script.Script, error) {
		return nil, errors.New("isolate: process needs Linux")
	}
}
