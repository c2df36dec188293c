//go:build cgo && luajit

package luajit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/luajit/torture"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
)

// TestTorture checks on both front ends that each hostile script ends in an allowed way and harms
// no other event. make torture measures how soon.
func TestTorture(t *testing.T) {
	for _, mode := range []string{"compiled", "interpreted"} {
		store := hostileStore(t)
		for _, script := range hostileScripts(mode == "compiled") {
			if (script.Nodes || script.State) && store == nil {
				continue
			}
			t.Run(mode+"/"+script.Name, func(t *testing.T) {
				attack(t, hostileOptions(script, mode), script, store)
			})
		}
	}
}

// hostileScripts returns all scripts in long tests, otherwise the first, third, … if odd is set,
// and the others if not: TestTorture compiles those that TestTortureInvoke interprets, and
// interprets the others. With -short, which the race detector uses, they are one in eight, since
// they differ in Lua and C code, which the detector does not see. make torture runs all, too.
func hostileScripts(odd bool) []torture.Script {
	all := torture.Scripts()
	if testsize.Long() {
		return all
	}
	first, step := 1, 2
	if odd {
		first = 0
	}
	if testing.Short() {
		first, step = 0, 8
	}
	var some []torture.Script
	for i := first; i < len(all); i += step {
		some = append(some, all[i])
	}
	return some
}

// hostileOptions returns the limits for a script. A script that may end at the time limit gets a
// short one; one that must end by itself gets time enough for a slow machine.
func hostileOptions(script torture.Script, mode string) Options {
	opts := defaults()
	if slices.Contains(script.AllowedEnds, EventTime.String()) {
		opts.EventTime /= 5
	} else {
		opts.EventTime = opts.BatchTime
	}
	opts.NoJIT = mode == "interpreted"
	return opts
}

func attack(t *testing.T, opts Options, script torture.Script, store *nodedb.Store) {
	w := NewWatchdog()
	defer w.Close()
	setup := Setup{Output: 8 << 20, Sinks: []Sink{{}}, Host: &Host{
		Functions: []Function{{Name: "net.addr", Waits: true, Call: torture.LookUp}},
	}}
	if store != nil {
		setup.Extension = lua.NewExtension(store)
	}
	batch := hostileBatch()
	if script.State {
		delta := hostileState(t)
		setup.Extension, batch.State, batch.Time = lua.ForState(), delta, delta.Clock()
	}
	e, err := NewEngine(w, opts, setup)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Load(context.Background(), "hostile.lua", []byte(script.Code())); err != nil {
		t.Fatal(err)
	}
	out := e.Run(context.Background(), batch, 0)
	end, message := out.Limit, ""
	for _, dead := range out.DeadEvents() {
		f := dead.ScriptError
		end, message = f.Kind, f.Message
		inScript := !strings.HasSuffix(script.Name, "outputs") // these fail after main has returned
		if dead.Event != 1 || inScript && (f.Line == 0 || f.Traceback == "") {
			t.Errorf("event %d: %v has no place or traceback: %+v", dead.Event, f, *f)
		}
	}
	if !slices.Contains(script.AllowedEnds, end.String()) {
		t.Errorf("ended with %v %s, want one of %q", end, message, script.AllowedEnds)
	}
	if e.VM.Broken() == OK && (out.Ran != 3 || !slices.Contains(out.From, 2)) {
		t.Errorf("the VM is sound, but stopped at event %d; outputs are of %v", out.Ran, out.From)
	}
	if !slices.Contains(out.From, 0) {
		t.Errorf("the event before is lost; outputs are of %v", out.From)
	}
}

// hostileState returns a delta for scripts that need a state.
func hostileState(t *testing.T) *nodedb.Delta {
	t.Helper()
	u, err := nodedb.OpenUnit(t.TempDir(), nodedb.UnitOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	delta, err := torture.FillState(u, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return delta
}

// hostileStore returns a store for scripts that need one; nil if this build has none.
func hostileStore(t *testing.T) *nodedb.Store {
	t.Helper()
	store, err := nodedb.Open(t.TempDir(), nodedb.Options{NoSync: true})
	if errors.Is(err, nodedb.ErrUnavailable) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	holder, err := store.Session()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		holder.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(torture.Fill(store, 100_000), holder.Lock(context.Background(), nodedb.Name("^held"))); err != nil {
		t.Fatal(err)
	}
	return store
}

func hostileBatch() *event.Batch {
	batch := new(event.Batch)
	for _, doc := range torture.Batch {
		batch.Append([]byte(doc))
	}
	return batch
}
