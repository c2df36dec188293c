//go:build cgo && luajit

package luajit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

// FuzzCompiledPrograms runs random programs interpreted, and compiled with several compiler
// settings, and compares their notes, results and errors. The input is the seed.
func FuzzCompiledPrograms(f *testing.F) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		f.Add(uint64(seed))
	}
	w := NewWatchdog()
	f.Cleanup(w.Close)
	f.Fuzz(func(t *testing.T, seed uint64) { compareModes(t, w, seed) })
}

// compilerSettings make the compiler start at once, and use its rarer optimizations.
var compilerSettings = []string{
	`"hotloop=2", "hotexit=1"`,
	`"hotloop=4", "hotexit=2", "minstitch=3", "instunroll=2", "loopunroll=3"`,
	`"hotloop=3", "hotexit=1", "-loop"`,
	`"hotloop=3", "hotexit=2", "-fold", "-cse", "-dce", "-fwd", "-dse", "-narrow", "-abc", "-sink", "-fuse"`,
	`"hotloop=2", "hotexit=3", "tryside=1", "maxtrace=20"`,
}

func compareModes(t *testing.T, w *Watchdog, seed uint64) {
	text := program(seed)
	want, limit := runProgram(t, w, text, "")
	if testing.Verbose() && strings.HasPrefix(want, "load: ") {
		t.Log(seed, want)
	}
	if limit {
		return
	}
	settings := compilerSettings[seed%uint64(len(compilerSettings))]
	got, limit := runProgram(t, w, text, settings)
	if !limit && got != want {
		t.Errorf("seed %d: compiled with %s:\n%s\ninterpreted:\n%s\nprogram:\n%s", seed, settings, differing(got, want), differing(want, got), text)
	}
}

// runProgram returns the outcome of a program, and whether a limit ended it, which may strike at
// different places. Without settings the program is interpreted.
func runProgram(t *testing.T, w *Watchdog, text, settings string) (result string, limit bool) {
	return runProgramWith(t, w, text, settings, Setup{})
}

func runProgramWith(t *testing.T, w *Watchdog, text, settings string, setup Setup) (result string, limit bool) {
	opts := Options{EventTime: 2 * time.Second, BatchTime: 5 * time.Second, Memory: 64 << 20, NoJIT: settings == ""}
	if setup.CollectBeforeCalls {
		opts.EventTime, opts.BatchTime = 20*time.Second, time.Minute
	}
	setup.Output, setup.Sinks = 8<<20, []Sink{{}}
	e, err := NewEngine(w, opts, setup)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if settings != "" {
		if err := e.VM.runTrusted("require('jit.opt').start(" + settings + ")"); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Load(context.Background(), "random.lua", []byte(text)); err != nil {
		return "load: " + err.Error(), false
	}
	batch := new(event.Batch)
	for i := range 4 {
		batch.Append(fmt.Appendf(nil, `{"n":%d,"s":"t%d","l":[1,"two",3],"o":{"a":1.5,"b":null},"big":12345678901234567890}`, i, i))
	}
	out := e.Run(context.Background(), batch, 0)
	var all strings.Builder
	fmt.Fprintln(&all, out.Ran, out.Ends, out.From)
	all.WriteString(strings.ReplaceAll(string(out.Data), "\\n", "\n"))
	for _, dead := range out.DeadEvents() {
		fmt.Fprintf(&all, "\n%d: %v", dead.Event, dead.ScriptError)
	}
	return all.String(), out.Limit != OK
}

// differing returns the first lines of a that differ from b.
func differing(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	var lines []string
	for i := range as {
		if (i >= len(bs) || as[i] != bs[i]) && len(lines) < 5 {
			lines = append(lines, fmt.Sprintf("%d: %s", i, as[i]))
		}
	}
	return strings.Join(lines, "\n")
}
