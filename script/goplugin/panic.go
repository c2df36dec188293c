package goplugin

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/perigeedb/perigee/script"
)

// recoverPanic is deferred around a plugin's code and makes an error of its panic.
func (p *Plugin) recoverPanic(err *error) {
	if reason := recover(); reason != nil {
		*err = &script.Error{Script: p.String(), Message: fmt.Sprintf("panic: %v", reason), Traceback: pluginStack()}
	}
}

// framesMax bounds a traceback.
const framesMax = 64

// packagePrefix is how the functions of this package are called.
const packagePrefix = "github.com/perigeedb/perigee/script/goplugin."

// pluginStack is the stack of a panic, as far as it is the plugin's: without the frames
// of the runtime, and up to our call.
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
