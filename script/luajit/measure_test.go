//go:build cgo && luajit

package luajit

import (
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// TestMeasure: the line that does most has most of the time, each line is counted, and files that the
// script requires are told apart.
func TestMeasure(t *testing.T) {
	code := script.Code{
		Name:  "m.lua",
		Text:  []byte("local other = require 'other'\nfunction main(e)\n  local s = ('x'):rep(4000000)\n  e.n = other.double(e.n)\n  return e\nend"),
		Files: func(string) ([]byte, error) { return []byte("return {double = function(n)\n  return 2 * n\nend}"), nil },
	}
	m, err := Measure(t.Context(), code, script.Options{Sinks: []script.Sink{{}}}, numberedBatch(100), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if m.Took <= 0 || m.Interpreted <= 0 {
		t.Errorf("a pass took %v, interpreted %v", m.Took, m.Interpreted)
	}
	type place struct {
		file string
		line int
	}
	runs, times, sum := map[place]int{}, map[place]time.Duration{}, time.Duration(0)
	for _, l := range m.Lines {
		runs[place{l.File, l.Line}], times[place{l.File, l.Line}] = l.Runs, l.Time
		sum += l.Time
	}
	for at, want := range map[place]int{{"", 3}: 100, {"", 4}: 200, {"", 5}: 100, {"other.lua", 2}: 100} {
		if runs[at] != want {
			t.Errorf("line %d of %q ran %d times, want %d: %v", at.line, at.file, runs[at], want, runs)
		}
	}
	if slowest := times[place{"", 3}]; slowest < sum/2 {
		t.Errorf("the slowest line has %v of %v: %v", slowest, sum, times)
	}
	if sum > m.Interpreted {
		t.Errorf("the lines have %v of a pass of %v", sum, m.Interpreted)
	}
}

// TestMeasureReachesLimit: a script that never ends is refused like anywhere.
func TestMeasureReachesLimit(t *testing.T) {
	code := script.Code{Name: "m.lua", Text: []byte("function main(e) while true do end end")}
	opts := script.Options{Sinks: []script.Sink{{}}, Limits: script.Limits{EventTime: 20 * time.Millisecond, BatchTime: 50 * time.Millisecond}}
	if _, err := Measure(t.Context(), code, opts, numberedBatch(100), time.Millisecond); err == nil {
		t.Error("no error")
	}
}
