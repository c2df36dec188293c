//go:build cgo

package luajit

import (
	"errors"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/internal/luajit/torture"
)

// TestTorture checks that each hostile script ends as it must, compiled and
// interpreted. How soon is for make torture.
func TestTorture(t *testing.T) {
	for _, mode := range []string{"compiled", "interpreted"} {
		for _, script := range torture.Scripts() {
			t.Run(mode+"/"+script.Name, func(t *testing.T) {
				opts := defaults()
				opts.EventTime /= 5
				opts.NoJIT = mode == "interpreted"
				vm := open(t, opts)
				if err := vm.Load("hostile.lua", []byte(script.Code())); err != nil {
					t.Fatal(err)
				}
				end, err := OK.String(), vm.Call("main")
				var f *Fault
				if errors.As(err, &f) {
					end = f.Kind.String()
				}
				if !slices.Contains(script.Ends, end) {
					t.Errorf("ended with %q (%v), want one of %q", end, err, script.Ends)
				}
				if f != nil && (f.Line == 0 || f.Traceback == "") {
					t.Errorf("%v has no place or traceback: %+v", f, *f)
				}
			})
		}
	}
}
