// Package scripttest is the conformance suite for Lua engines: it specifies what a
// script sees and what a batch results in. Call Test for a language of your own:
//
//	func TestLanguage(t *testing.T) { scripttest.Test(t, mylanguage.Language(), scripttest.Features{}) }
//
// The cases in testdata are Lua scripts with events, the expected documents and the
// expected dead letters; see cases.go for the format. Limits, columns, routing, loading
// and concurrency are tested in Go. A language that lacks an optional feature says so
// in Features.
package scripttest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// Features are the optional features of a language.
type Features struct {
	Memory     bool // Limits.Memory holds for whatever a script does
	MixedOrder bool // < and <= between a big number and a plain one
}

// Test runs the suite on a language.
func Test(t *testing.T, lang script.Language, has Features) {
	t.Run("events", func(t *testing.T) { testCases(t, lang, has) })
	t.Run("parse", func(t *testing.T) { testParse(t, lang) })
	t.Run("columns", func(t *testing.T) { testColumns(t, lang) })
	t.Run("columns only", func(t *testing.T) { testColumnsOnly(t, lang) })
	t.Run("routing", func(t *testing.T) { testRouting(t, lang) })
	t.Run("load", func(t *testing.T) { testLoad(t, lang) })
	t.Run("run", func(t *testing.T) { testRun(t, lang) })
	t.Run("limits", func(t *testing.T) { testLimits(t, lang, has) })
	t.Run("growth", func(t *testing.T) { testGrowth(t, lang) })
	t.Run("edges", func(t *testing.T) { testEdges(t, lang, has) })
	t.Run("modules", func(t *testing.T) { testModules(t, lang) })
	t.Run("values", func(t *testing.T) { testValues(t, lang) })
	t.Run("function", func(t *testing.T) { testFunction(t, lang) })
}

// scriptName is what the scripts of the suite are called in errors.
const scriptName = "case.lua"

// firstPosition is where the batches of the suite start, so that an index taken
// for a position is noticed.
const firstPosition = 1000

func load(t testing.TB, lang script.Language, text string, opts script.Options) script.Script {
	t.Helper()
	if opts.Sinks == nil {
		opts.Sinks = []script.Sink{{}}
	}
	if opts.Limits.EventTime == 0 && opts.Limits.BatchTime == 0 { // the default is for real machines, not for tests beside others
		opts.Limits.EventTime, opts.Limits.BatchTime = 20*time.Second, time.Minute
	}
	s, err := lang.Load(t.Context(), script.Code{Name: scriptName, Text: []byte(text), Files: readFile}, opts)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func batch(docs ...string) *event.Batch {
	b := &event.Batch{Partition: "p"}
	for _, doc := range docs {
		b.Append([]byte(doc))
	}
	b.Range = event.Range{First: firstPosition, Count: uint64(len(docs))}
	return b
}

// result returns a result with room for the outputs of one sink.
func result() *event.Result { return &event.Result{Outputs: make([]event.Output, 1)} }

// run passes docs through a script with one sink, and checks what every result must
// satisfy.
func run(t testing.TB, s script.Script, docs ...string) *event.Result {
	t.Helper()
	return runBatch(t, s, batch(docs...), docs)
}

func runBatch(t testing.TB, s script.Script, in *event.Batch, docs []string) *event.Result {
	t.Helper()
	res := result()
	if err := s.Run(context.Background(), in, res); err != nil {
		t.Fatalf("run: %v", err)
	}
	if res.Ran != len(docs) {
		t.Errorf("ran %d of %d events", res.Ran, len(docs))
	}
	checkResult(t, s, docs, in, res)
	return res
}

// checkResult checks that every event is accounted for, and that dead letters and
// outputs name their events.
func checkResult(t testing.TB, s script.Script, docs []string, in *event.Batch, res *event.Result) {
	t.Helper()
	if got, want := string(in.Data), strings.Join(docs, ""); got != want {
		t.Errorf("the batch was changed to %q", got)
	}
	settled := map[int]bool{}
	for i := range res.Outputs {
		out := &res.Outputs[i]
		if len(out.From) != len(out.Ends) {
			t.Errorf("%d origins for %d documents", len(out.From), len(out.Ends))
		}
		if out.Partition != in.Partition || out.Range.First != in.Range.First || out.Range.Count != uint64(res.Ran) {
			t.Errorf("output is named %q %v, the batch %q %v with %d run", out.Partition, out.Range, in.Partition, in.Range, res.Ran)
		}
		for _, from := range out.From {
			settled[int(from)] = true
		}
	}
	for i := range res.Dead {
		settled[checkDead(t, s, docs, &res.Dead[i])] = true
	}
	if got := len(settled) + res.Dropped; got != res.Ran {
		t.Errorf("%d events came out or died and %d were dropped, %d ran", len(settled), res.Dropped, res.Ran)
	}
}

// checkDead returns the index of the event in the batch.
func checkDead(t testing.TB, s script.Script, docs []string, dead *event.DeadLetter) int {
	t.Helper()
	i := int(dead.Position) - firstPosition
	if i < 0 || i >= len(docs) {
		t.Fatalf("dead letter for position %d, which is not in the batch", dead.Position)
	}
	if got := string(dead.Original); got != docs[i] {
		t.Errorf("dead letter of event %d has the original %q, want %q", i, got, docs[i])
	}
	if dead.Script != s.String() {
		t.Errorf("dead letter names the script %q, want %q", dead.Script, s)
	}
	return i
}
