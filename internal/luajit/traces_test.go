//go:build cgo && luajit

package luajit

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

const uncompiled = `local seen = {}
function main(event)
  local n = 0
  for k, v in pairs({a = 1, b = 2}) do
    n = n + v
  end
  local f = function() return n end
  event.s = string.format("%q", "x") .. f()
  seen[#seen % 10 + 1] = string.rep("x", 3):reverse()
  local ok = pcall(f)
  table.concat({"a", "b"})
  event.t = table.remove(seen, 1)
  return event
end
`

func TestListen(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	e, err := NewEngine(w, Options{EventTime: time.Second, BatchTime: time.Second, Memory: 64 << 20}, Setup{Output: 1 << 20, Sinks: []Sink{{Name: "s"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l, err := e.RecordTraces()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := e.Load(ctx, "u.lua", []byte(uncompiled)); err != nil {
		t.Fatal(err)
	}
	b := &event.Batch{Range: event.Range{Count: 500}}
	for i := range 500 {
		b.Append(fmt.Appendf(nil, `{"n":%d}`, i))
	}
	for range 3 {
		if o := e.Run(ctx, b, 0); o.Limit != OK {
			t.Fatal(o.Limit, e.VM.LastError())
		}
	}
	all, err := l.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []TraceEvent{
		{What: Compiled, File: "u.lua", Line: 4},
		{What: Aborted, Reason: "NYI: bytecode %s", Subject: "FNEW", File: "u.lua", Line: 7},
		{What: Left, Subject: "coroutine.running", File: "u.lua", Line: 10},
	} {
		if !slices.ContainsFunc(all, want.like) {
			t.Errorf("nothing like %+v was heard in:\n%+v", want, all)
		}
	}
}

// like reports whether another event matches this one in all fields that are set.
func (e TraceEvent) like(other TraceEvent) bool {
	return e.What == other.What && e.File == other.File && e.Line == other.Line && other.Count > 0 &&
		(e.Reason == "" || e.Reason == other.Reason) && (e.Subject == "" || e.Subject == other.Subject)
}
