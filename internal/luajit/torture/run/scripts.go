//go:build cgo && luajit

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/internal/luajit/torture"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
)

const deadline = 100 * time.Millisecond

// nodesPerTree is the number of nodes that a script kills, counts and merges.
const nodesPerTree = 5_000_000

// fillStore creates a store for the scripts that need one.
func fillStore(nodes int) (folder string, err error) {
	folder, err = os.MkdirTemp("", "torture")
	if err != nil {
		return "", err
	}
	store, err := nodedb.Open(folder, nodedb.Options{NoSync: true, NoWait: true})
	if err == nil {
		err = errors.Join(torture.Fill(store, nodes), store.Close())
	}
	if err != nil {
		os.RemoveAll(folder)
	}
	return folder, err
}

// openHeld opens a store, with a session that holds the lock of ^held.
func openHeld(folder string) (store *nodedb.Store, closeAll func(), err error) {
	store, err = nodedb.Open(folder, nodedb.Options{NoSync: true})
	if err != nil {
		return nil, nil, err
	}
	holder, err := store.Session()
	if err != nil {
		return nil, nil, err
	}
	return store, func() { holder.Close(); store.Close() }, holder.Lock(context.Background(), nodedb.Name("^held"))
}

// nodesOfState is the number of nodes below each tree of a state.
const nodesOfState = 100_000

// openState returns a delta of a new unit, over others that are committed or in flight.
func openState() (delta *nodedb.Delta, closeAll func(), err error) {
	folder, err := os.MkdirTemp("", "torture-state")
	if err != nil {
		return nil, nil, err
	}
	unit, err := nodedb.OpenUnit(folder, nodedb.UnitOptions{NoSync: true})
	if err == nil {
		delta, err = torture.FillState(unit, nodesOfState)
	}
	return delta, func() { unit.Close(); os.RemoveAll(folder) }, err
}

// runScript runs one script in this process and prints "kind,µs,µs starved,remark".
func runScript(name string, jit bool, memory int, folder string) {
	script := findScript(name)
	var store *nodedb.Store
	if script.Nodes {
		opened, closeAll, err := openHeld(folder)
		if err != nil {
			fmt.Printf("none,0,0,%v\n", err)
			return
		}
		defer closeAll()
		store = opened
	}
	var delta *nodedb.Delta
	if script.State {
		opened, closeAll, err := openState()
		if err != nil {
			fmt.Printf("none,0,0,%v\n", err)
			return
		}
		defer closeAll()
		delta = opened
	}
	w := luajit.NewWatchdog()
	defer w.Close()
	setup := luajit.Setup{Output: 64 << 20, Sinks: []luajit.Sink{{}}, Host: &luajit.Host{Functions: []luajit.Function{
		{Name: "net.addr", Waits: true, Call: torture.LookUp},
	}}}
	if store != nil {
		setup.Extension = lua.NewExtension(store)
	}
	if delta != nil {
		setup.Extension = lua.ForState()
	}
	e, err := luajit.NewEngine(w, luajit.Options{
		EventTime: deadline, BatchTime: 2 * time.Second, WallTime: 3 * deadline, Memory: memory, NoJIT: !jit,
	}, setup)
	if err != nil {
		fmt.Printf("none,0,0,%v\n", err)
		return
	}
	defer e.Close()
	if err := e.Load(context.Background(), "hostile.lua", []byte(script.Code())); err != nil {
		fmt.Printf("none,0,0,%v\n", err)
		return
	}
	batch := new(event.Batch)
	for _, doc := range torture.Batch {
		batch.Append([]byte(doc))
	}
	if delta != nil {
		batch.State, batch.Time = delta, delta.Clock()
	}
	before, start := threadWaits(), time.Now()
	out := e.Run(context.Background(), batch, 0)
	took, lost := time.Since(start), longestWait(before)
	kind, remark := classifyEnd(e, out)
	fmt.Printf("%v,%d,%d,%s\n", kind, took.Microseconds(), lost.Microseconds(), remark)
}

// classifyEnd returns how the hostile event ended, or "lost" if another event of the batch did not
// return.
func classifyEnd(e *luajit.Engine, out *luajit.Outcome) (kind, remark string) {
	if !slices.Contains(out.From, 0) {
		return "lost", "the event before"
	}
	if e.VM.Broken() == luajit.OK && !slices.Contains(out.From, 2) {
		return "lost", "the event after"
	}
	for _, dead := range out.DeadEvents() {
		return dead.ScriptError.Kind.String(), dead.ScriptError.Error()
	}
	return out.Limit.String(), ""
}

func findScript(name string) torture.Script {
	scripts := torture.Scripts()
	i := slices.IndexFunc(scripts, func(s torture.Script) bool { return s.Name == name })
	if i < 0 {
		fmt.Fprintf(os.Stderr, "no script %q\n", name)
		os.Exit(2)
	}
	return scripts[i]
}

// runAll runs every script compiled and interpreted and checks how it ends.
func runAll(only string) int {
	scripts, failures, escaped := 0, 0, 0
	for _, mode := range []string{"compiled", "interpreted"} {
		var late []time.Duration
		folder, err := fillStore(nodesPerTree)
		if err != nil {
			fmt.Println("FAIL", err)
			return 1
		}
		for _, script := range torture.Scripts() {
			if !strings.Contains(script.Name, only) {
				continue
			}
			scripts++
			out, err := runChild(script.Name, mode, 64<<20, folder)
			verdict, by := checkEnd(script, out, err)
			if verdict != "" {
				failures++
				escaped++
				fmt.Printf("FAIL %-12s %-40s %s\n", mode, script.Name, verdict)
				continue
			}
			late = append(late, by)
		}
		os.RemoveAll(folder)
		m := median(late)
		fmt.Printf("%s: stopped %v after the deadline in the median, %v at worst\n", mode, m, slices.Max(append(late, 0)))
		if m > maxMedian {
			failures++
			fmt.Printf("FAIL %-12s the median is above %v\n", mode, maxMedian)
		}
	}
	fmt.Printf("figure torture_scripts %d\nfigure torture_failures %d\nfigure torture_escaped %d\n", scripts, failures, escaped)
	return min(failures, 1)
}

// checkEnd returns why the end of a script is a failure, or "", and how long after the deadline it
// ended. Time for which the machine starved a thread does not count towards maxWorst.
func checkEnd(script torture.Script, out string, err error) (string, time.Duration) {
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out), 0
	}
	fields := strings.SplitN(out, ",", 4)
	var took, lost int64
	if len(fields) == 4 {
		fmt.Sscan(fields[1], &took)
		fmt.Sscan(fields[2], &lost)
	}
	late := time.Duration(took)*time.Microsecond - deadline
	switch {
	case !slices.Contains(script.AllowedEnds, fields[0]):
		return "ended with " + out, 0
	case late-time.Duration(lost)*time.Microsecond > maxWorst:
		return fmt.Sprintf("stopped %v after the deadline, starved for %dµs of them", late, lost), 0
	}
	return "", max(late, 0)
}
