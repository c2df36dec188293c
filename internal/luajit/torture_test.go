//go:build cgo && luajit

package luajit

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/luajit/torture"
)

// TestTorture checks on both front ends that each hostile script ends as it must,
// and harms no other event. How soon is for make torture.
func TestTorture(t *testing.T) {
	for _, mode := range []string{"compiled", "interpreted"} {
		for _, script := range torture.Scripts() {
			t.Run(mode+"/"+script.Name, func(t *testing.T) {
				opts := defaults()
				opts.EventTime /= 5
				opts.NoJIT = mode == "interpreted"
				attack(t, opts, script)
			})
		}
	}
}

func attack(t *testing.T, opts Options, script torture.Script) {
	w := NewWatchdog()
	defer w.Close()
	e, err := NewEngine(w, opts, Setup{Output: 8 << 20, Sinks: []Sink{{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Load(context.Background(), "hostile.lua", []byte(script.Code())); err != nil {
		t.Fatal(err)
	}
	out := e.Run(context.Background(), hostileBatch(), 0)
	end := out.Limit
	for _, dead := range out.DeadEvents() {
		f := dead.ScriptError
		end = f.Kind
		inScript := !strings.HasSuffix(script.Name, "outputs") // those fail when main has returned
		if dead.Event != 1 || inScript && (f.Line == 0 || f.Traceback == "") {
			t.Errorf("event %d: %v has no place or traceback: %+v", dead.Event, f, *f)
		}
	}
	if !slices.Contains(script.AllowedEnds, end.String()) {
		t.Errorf("ended with %v, want one of %q", end, script.AllowedEnds)
	}
	if e.VM.Broken() == OK && (out.Ran != 3 || !slices.Contains(out.From, 2)) {
		t.Errorf("the VM is sound, but stopped at event %d; outputs are of %v", out.Ran, out.From)
	}
	if !slices.Contains(out.From, 0) {
		t.Errorf("the event before is lost; outputs are of %v", out.From)
	}
}

func hostileBatch() *event.Batch {
	batch := new(event.Batch)
	for _, doc := range torture.Batch {
		batch.Append([]byte(doc))
	}
	return batch
}
