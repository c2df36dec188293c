package goplugin

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/perigeedb/perigee/script"
)

// recoverPanic turns a panic of the plugin into an error. Defer it around the plugin's
// code.
func (p *Plugin) recoverPanic(err *error) {
	if reason := recover(); reason != nil {
		*err = &script.Error{Script: p.String(), Message: fmt.Sprintf("panic: %v", reason), Traceback: pluginStack()}
	}
}

// framesMax bounds a traceback.
const framesMax = 64

// packagePrefix begins the names of this package's functions.
const packagePrefix = "github.com/perigeedb/perigee/script/goplugin."

// pluginStack returns the plugin's part of the stack of a panic: without frames of the
// runtime, up to our call.
func pluginStack() string {
	pcs := make([]uintptr, framesMax)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var s strings.Builder
	for {
		frame, more := frames.Next()
		mine := strings.HasPrefix(frame.Function, packagePrefix)
		if mine && s.Len() > 0 {
			return s.String()
		}
		if !mine && !strings.HasPrefix(frame.Function, "runtime.") {
			fmt.Fprintf(&s, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		}
		if !more {
			return s.String()
		}
	}
}
