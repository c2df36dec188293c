//go:build cgo && luajit

package luajit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
)

func numberedBatch(n int) *event.Batch {
	b := &event.Batch{Range: event.Range{Count: uint64(n)}}
	for i := range n {
		b.Append(fmt.Appendf(nil, `{"n":%d}`, i))
	}
	return b
}

// TestCompileRunsBatches passes a batch so many times through a script, or once when that alone
// takes too long, and logs what the script prints.
func TestCompileRunsBatches(t *testing.T) {
	code := script.Code{Name: "c.lua", Text: []byte("print('loaded') function main(e) print('ran', e.n) return e end")}
	for _, test := range []struct {
		times int
		long  time.Duration
		want  int
	}{{0, time.Hour, 0}, {1, time.Hour, 1}, {3, time.Hour, 3}, {3, 0, 1}} {
		var log bytes.Buffer
		opts := script.Options{Sinks: []script.Sink{{}}, Log: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := Compile(t.Context(), code, opts, numberedBatch(2), test.times, test.long); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]int{"loaded": 1, `"ran\t0"`: test.want, `"ran\t1"`: test.want, "script=c.lua@": 1 + 2*test.want} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%d times within %s: the log has %s %d times, want %d:\n%s", test.times, test.long, text, got, want, log.String())
			}
		}
	}
}

func TestCompile(t *testing.T) {
	if compiles() != nil {
		t.Skip("nothing is compiled on this machine")
	}
	code := script.Code{Name: "c.lua", Func: "each", Text: []byte("function each(e)\n  local s = 0\n  for i = 1, 9 do s = s + i end\n  local f = function() return s end\n  e.s = f()\n  return e\nend")}
	got, err := Compile(t.Context(), code, script.Options{Sinks: []script.Sink{{}}}, numberedBatch(500), 3, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if got.Traces == 0 {
		t.Error("the compiler made nothing of a loop")
	}
	found := false
	for _, u := range got.Uncovered {
		found = found || u.File == "c.lua" && u.Line == 4 && u.Reason == "NYI: bytecode FNEW" && u.Explanation == bytecodes["FNEW"] && u.Count > 0 && !u.Minor
	}
	if !found {
		t.Errorf("the function that is made in line 4 is not among %+v", got.Uncovered)
	}
}

func TestCompileFails(t *testing.T) {
	limits := script.Limits{EventTime: 20 * time.Millisecond, BatchTime: 40 * time.Millisecond}
	for _, test := range []struct{ text, want string }{
		{text: "function main(e) return e.", want: "expected"},
		{text: "function mian(e) return e end", want: "main"},
		{text: "function main(e) while true do end end", want: "listen to the compiler"},
	} {
		code := script.Code{Name: "c.lua", Text: []byte(test.text)}
		c, err := Compile(t.Context(), code, script.Options{Sinks: []script.Sink{{}}, Limits: limits}, numberedBatch(2), 3, time.Hour)
		var fault *script.Error
		if !errors.As(err, &fault) || fault.Script != "c.lua" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want a fault of the script with %q", test.text, err, test.want)
		}
		if diff := cmp.Diff(Compilation{}, c); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.text, diff)
		}
	}
	taken := script.Options{Sinks: []script.Sink{{}}, Modules: []script.Module{{Name: "time"}}}
	if _, err := Compile(t.Context(), script.Code{Text: []byte("function main(e) return e end")}, taken, numberedBatch(1), 1, time.Hour); err == nil || !strings.Contains(err.Error(), "the name is taken") {
		t.Errorf("error is %v", err)
	}
}

// TestCompilationIsSorted: what matters comes first, then by place and by how often.
func TestCompilationIsSorted(t *testing.T) {
	heard := []luajit.TraceEvent{
		{What: luajit.Compiled, File: "b.lua", Line: 1, Count: 2},
		{What: luajit.Left, Subject: "coroutine.wrap", File: "a.lua", Line: 1, Count: 9},
		{What: luajit.Left, Subject: "string.rep", File: "a.lua", Line: 2, Count: 1},
		{What: luajit.Left, File: "a.lua", Line: 3, Count: 1},
		{What: luajit.Aborted, Reason: "blacklisted", Count: 1},
		{What: luajit.Aborted, Reason: "NYI: bytecode %s", Subject: "FNEW", File: "b.lua", Line: 2, Count: 1},
		{What: luajit.Aborted, Reason: "NYI: bytecode %s", Subject: "XYZ", File: "b.lua", Line: 1, Count: 1},
		{What: luajit.Aborted, Reason: "trace too long", File: "b.lua", Line: 1, Count: 2},
		{What: luajit.Aborted, Reason: "unheard of", File: "b.lua", Line: 1, Count: 1},
		{What: luajit.Aborted, Reason: "leaving loop in root trace", File: "a.lua", Line: 7, Count: 1},
		{What: luajit.Inside, Reason: "blacklisted", File: "c.lua", Line: 1, Count: 1},
		{What: luajit.Inside, Reason: "retry recording", File: "c.lua", Line: 1, Count: 1},
		{What: luajit.Compiled, Count: 3},
	}
	want := Compilation{Traces: 5, Uncovered: []Uncovered{
		{File: "b.lua", Line: 1, Count: 2, Reason: "trace too long", Explanation: reasons["trace too long"]},
		{File: "b.lua", Line: 1, Count: 1, Reason: "NYI: bytecode XYZ", Explanation: "uses an instruction that is not compiled"},
		{File: "b.lua", Line: 1, Count: 1, Reason: "unheard of", Explanation: "is not compiled"},
		{File: "b.lua", Line: 2, Count: 1, Reason: "NYI: bytecode FNEW", Explanation: bytecodes["FNEW"]},
		{File: "c.lua", Line: 1, Count: 1, Reason: "blacklisted", Explanation: "calls a function of perigee's that is not compiled, such as pcall"},
		{File: "a.lua", Line: 1, Count: 9, Minor: true, Reason: "trace stitched at coroutine.wrap", Explanation: "calls coroutine.wrap (pcall is built on it), which the interpreter does; compiled code goes on after it"},
		{File: "a.lua", Line: 2, Count: 1, Minor: true, Reason: "trace stitched at string.rep", Explanation: "calls string.rep, which the interpreter does; compiled code goes on after it"},
		{File: "a.lua", Line: 7, Count: 1, Minor: true, Reason: "leaving loop in root trace", Explanation: transientReasons["leaving loop in root trace"]},
		{File: "c.lua", Line: 1, Count: 1, Minor: true, Reason: "retry recording", Explanation: transientReasons["retry recording"]},
	}}
	if diff := cmp.Diff(want, newCompilation(heard)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
