//go:build cgo && luajit

package luajit

import (
	"slices"
	"strings"
	"testing"
)

// TestProbe checks that this build can stop compiled loops, which all limits need.
func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Error(err)
	}
}

func TestProbeSeesALoopThatIsNotStopped(t *testing.T) {
	w := NewWatchdog()
	w.Close() // without it, the hook is never armed
	if err := probeHook(w); err == nil || !strings.Contains(err.Error(), "build it with") {
		t.Errorf("got %v", err)
	}
}

func TestProbeTailCalls(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	if err := ProbeTailCalls(w); err != nil {
		t.Error(err)
	}
}

// TestProbeSeesWhatTailCallsAreNot expects wrong results, as a misread stack would give: the probe
// must fail.
func TestProbeSeesWhatTailCallsAreNot(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	for _, wrong := range []tailCall{
		{code: "function f1() host.note() return 1 end", kind: TailCall},
		{code: "function f1() host.note() end", calls: 1},
		{code: "function f1() host.note() end", kind: TailCall, returned: true},
		{code: "function f1() for i = 1, 3 do host.note(i) end end", calls: 2},
		{code: "function f1() host.note() return 1 end", calls: 1, results: []any{2.0}},
		{code: "\nfunction f1() host.note() end", kind: TailCall},
	} {
		if err := probeTailCalls(w, Options{}, []tailCall{wrong}); err == nil {
			t.Errorf("%+v is not seen", wrong)
		}
	}
}

// TestNoTailCalls calls the functions of the probe without tail calls: no call ends with a Go
// function.
func TestNoTailCalls(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	long := slices.Clone(tailCalls)
	for i := range long {
		if long[i].kind == TailCall {
			long[i].kind, long[i].calls = OK, 1
		}
	}
	for _, noJIT := range []bool{false, true} {
		if err := probeTailCalls(w, Options{NoTailCalls: true, NoJIT: noJIT}, long); err != nil {
			t.Error(err)
		}
	}
}
