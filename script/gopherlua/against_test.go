//go:build cgo

package gopherlua_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/script/luajit"
)

// walkScript does to event.doc what event.ops say: it walks about, reads,
// writes, copies, and notes what it saw and what failed.
const walkScript = `
local function see(v)
  if v == nil then return "nil" end
  if type(v) == "table" then return "table " .. #v end
  if type(v) == "number" then return "number" end
  return type(v) .. " " .. tostring(v)
end
-- Documents and no tables: those have no order, and with holes no length either.
local function values()
  return {1, -0.5, "text\n\"é", true, false, json.null, json.decode("[]"), 1e300, json.decode("[ 1, 2]"),
    json.decode('{"a":{ },"b":"x"}'), json.decode("{}"), 123456789012}
end
local steps = {
  function(at, key, root) return type(at[key]) == "table" and at[key] or root end,
  function(at, key, root) return root end,
  function(at, key, root, seen) seen[#seen + 1] = see(at[key]) end,
  function(at, key, root, seen, value) at[key] = value end,
  function(at, key, root) at[key] = nil end,
  function(at, key, root) at[key] = root.a end,
  function(at, key, root) root.copy = at end,
  function(at, key, root, seen, value) table.insert(at, value) end,
  function(at, key, root, seen, value) table.insert(at, 1, value) end,
  function(at, key, root, seen) seen[#seen + 1] = see(table.remove(at, 1)) end,
  function(at, key, root, seen) seen[#seen + 1] = see(table.remove(at)) end,
  function(at, key, root, seen) for k, v in pairs(at) do seen[#seen + 1] = tostring(k) .. " " .. see(v) end end,
  function(at, key, root, seen) for i, v in ipairs(at) do seen[#seen + 1] = i .. " " .. see(v) end end,
  function(at, key, root, seen) seen[#seen + 1] = json.encode(at) end,
  function(at, key, root, seen) seen[#seen + 1] = tostring(json.isnull(at, key)) end,
  function(at, key, root, seen) at[key] = at[key] + 1 end,
  function(at, key, root, seen) local k, v = next(at, key) seen[#seen + 1] = tostring(k) .. " " .. see(v) end,
}
function main(event)
  local doc, seen = event.doc, {}
  local at = doc
  for n = 1, #event.ops do
    local op = event.ops[n]
    local value = values()[op[3] % 12 + 1]
    local ok, to = pcall(steps[op[1] % #steps + 1], at, op[2], doc, seen, value)
    if not ok then seen[#seen + 1] = "failed" elseif to then at = to end
  end
  event.seen = json.array(seen)
  event.ops = nil
  return event
end`

// walk makes the event of walkScript.
func walk(doc, ops []byte) string {
	keys := []string{`"a"`, `"b"`, `"copy"`, `1`, `2`, `3`, `0`, `"é\n"`, `"c"`}
	var steps []string
	for ; len(ops) >= 3; ops = ops[3:] {
		steps = append(steps, fmt.Sprintf("[%d,%s,%d]", ops[0], keys[int(ops[1])%len(keys)], ops[2]))
	}
	return fmt.Sprintf(`{"doc":%s,"ops":[%s]}`, doc, strings.Join(steps, ","))
}

// FuzzAgainstLuaJIT holds the engines to each other: the same script must leave
// the same bytes and fail in the same places.
func FuzzAgainstLuaJIT(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"a":{"b":[1,null,{"c":"x"}]},"b":1.50, "c" : [ ] }`, `{ "a" : 1 , "a" : [1,2.0,[3]] }`,
		`{"a":9007199254740993,"b":[1e400,-0,"\u00e9"],"\u00e9\n":null}`, `{"a":[{"a":{"a":[]}}],"b":{"b":{}}}`,
	} {
		f.Add([]byte(doc), []byte{0, 0, 0, 3, 1, 9, 13, 0, 0, 11, 0, 0, 7, 0, 3})
		f.Add([]byte(doc), []byte{3, 0, 8, 0, 0, 0, 3, 3, 1, 6, 0, 0, 1, 0, 0, 5, 1, 0, 14, 2, 0, 15, 0, 0})
		f.Add([]byte(doc), []byte{4, 0, 0, 3, 0, 9, 4, 1, 0, 16, 0, 0, 8, 0, 0, 9, 0, 0, 10, 0, 0, 12, 0, 0})
	}
	pureGo, jit := loadOn(f, gopherlua.Language()), loadOn(f, luajit.Language)
	f.Fuzz(func(t *testing.T, doc, ops []byte) {
		if len(ops) > 300 || !json.Valid(doc) {
			return
		}
		in := walk(doc, ops)
		if want, got := outcome(t, pureGo, in), outcome(t, jit, in); got != want {
			t.Errorf("%s\n    luajit: %s\n gopherlua: %s", in, got, want)
		}
	})
}

func loadOn(f *testing.F, lang script.Language) script.Script {
	s, err := lang.Load(f.Context(), script.Code{Name: "walk.lua", Text: []byte(walkScript)}, script.Options{
		Sinks:  [][]event.Column{nil},
		Limits: script.Limits{EventTime: 20 * time.Second, BatchTime: time.Minute, Output: 1 << 20},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Error(err)
		}
	})
	return s
}

// outcome is the document that came out, or the stage at which the event died.
func outcome(t *testing.T, s script.Script, doc string) string {
	var in event.Batch
	in.Append([]byte(doc))
	in.Range.Count = 1
	res := event.Result{Outputs: make([]event.Output, 1)}
	if err := s.Run(t.Context(), &in, &res); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	if len(res.Dead) > 0 {
		t.Log(&res.Dead[0])
		return "dead: " + res.Dead[0].Stage
	}
	return string(res.Outputs[0].Doc(0))
}
