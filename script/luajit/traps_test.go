//go:build cgo && luajit

package luajit_test

import (
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// TestIteratorsGetAnything calls what pairs and ipairs return with arguments
// that no loop would pass: a script may, and must not reach memory by it.
func TestIteratorsGetAnything(t *testing.T) {
	const text = `
local function try(f, ...) return pcall(f, ...) end
function main(event)
  local step, array = ipairs(event.a)
  local i, v = step(array, 1, "more", "and more", {})
  assert(i == 2 and v.x == 1)
  for _, f in ipairs({step, (pairs(event)), (pairs(event.a)), next}) do
    for _, first in ipairs({1, "x", {}, event, event.a, string, json.null, event.big, main}) do
      for _, second in ipairs({0/0, -1, 1e300, "x", {}, event, json.null}) do
        try(f, first, second, event, event.a, 1)
      end
      try(f, first)
    end
    try(f)
  end
  for _, f in ipairs({table.insert, table.remove, table.concat, table.sort, unpack, json.array, json.isnull, json.encode, json.decode}) do
    for _, first in ipairs({event, event.a, event.big, json.null, string}) do
      for _, second in ipairs({0/0, -1, 1e300, 0, "x", {}, event, json.null}) do try(f, first, second, event, 1, 2, 3) end
      try(f, first)
    end
    try(f)
  end
  return {done = true}
end`
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		s, err := lang.Load(t.Context(), script.Code{Name: "traps.lua", Text: []byte(text)}, script.Options{
			Sinks: []script.Sink{{}}, Limits: script.Limits{EventTime: 10 * time.Second, BatchTime: time.Minute},
		})
		if err != nil {
			t.Fatal(err)
		}
		in, res := &event.Batch{}, &event.Result{Outputs: make([]event.Output, 1)}
		for range 200 { // often enough to be compiled
			in.Append([]byte(`{"a":[1,{"x":1},null],"big":9007199254740993}`))
		}
		in.Range.Count = 200
		if err := s.Run(t.Context(), in, res); err != nil || len(res.Dead) > 0 || res.Outputs[0].Len() != 200 {
			t.Errorf("%s: %v, %d out, dead %v", lang.Name, err, res.Outputs[0].Len(), res.Dead)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
