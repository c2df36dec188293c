package goplugin

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// A Fault is what went wrong in a plugin's function: the error that it
// returned, or a panic with its stack.
type Fault struct {
	Err   error
	Stack string // of a panic
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// protect calls f and turns a panic into a Fault.
func protect(f func() (any, error)) (value any, fault *Fault) {
	defer func() {
		if reason := recover(); reason != nil {
			fault = &Fault{Err: fmt.Errorf("panic: %v", reason), Stack: stack()}
		}
	}()
	value, err := f()
	if err != nil {
		return nil, &Fault{Err: err}
	}
	return value, nil
}

// stack is the stack of a panic without the frames that belong to us: from the
// panic up to the plugin's own function.
func stack() string {
	all := string(debug.Stack())
	if _, after, found := strings.Cut(all, "panic("); found {
		all = "panic(" + after
	}
	before, _, _ := strings.Cut(all, "github.com/perigeedb/perigee/script/goplugin.")
	return strings.TrimSpace(before)
}
