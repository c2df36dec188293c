//go:build cgo && luajit

package gopherlua_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
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
	same := engines(f, walkScript)
	f.Fuzz(func(t *testing.T, doc, ops []byte) {
		if len(ops) < 300 && json.Valid(doc) {
			same(t, walk(doc, ops))
		}
	})
}

// TestLargeDocumentsAgainstLuaJIT is FuzzAgainstLuaJIT for documents that are so large, and in
// which so much is looked for, that the engines index their keys. Some keys come several times,
// some are spelled with escapes.
func TestLargeDocumentsAgainstLuaJIT(t *testing.T) {
	random, same := testseed.New(t), engines(t, walkScript)
	key := func() string {
		k := fmt.Sprintf(`"k%d"`, random.IntN(300))
		if random.IntN(5) == 0 {
			k = strings.Replace(k, "k", `\u006b`, 1)
		}
		return k
	}
	var value func(depth int) string
	value = func(depth int) string {
		switch n := random.IntN(40); {
		case n < 3 && depth < 3:
			fields := make([]string, random.IntN(60))
			for i := range fields {
				fields[i] = key() + ":" + value(depth+1)
			}
			return "{" + strings.Join(fields, ",") + "}"
		case n < 6 && depth < 3:
			elements := make([]string, random.IntN(60))
			for i := range elements {
				elements[i] = value(depth + 1)
			}
			return "[" + strings.Join(elements, ", ") + "]"
		case n < 10:
			return "null"
		}
		return fmt.Sprint(random.IntN(1000))
	}
	for range 40 {
		fields := make([]string, 100+random.IntN(400))
		for i := range fields {
			fields[i] = key() + ":" + value(0)
		}
		ops := make([]string, 150)
		for i := range ops {
			at := key()
			if random.IntN(4) == 0 {
				at = fmt.Sprint(random.IntN(60))
			}
			op := random.IntN(17)
			if op == 6 && i > 0 || (op == 11 || op == 13) && random.IntN(8) > 0 { // copies and lists of everything are long
				op = []int{3, 4, 16}[random.IntN(3)]
			}
			ops[i] = fmt.Sprintf("[%d,%s,%d]", op, at, random.IntN(256))
		}
		same(t, fmt.Sprintf(`{"doc":{%s},"ops":[%s]}`, strings.Join(fields, ","), strings.Join(ops, ",")))
		if t.Failed() {
			return
		}
	}
}

const numberScript = `
local function try(f, x, y)
  local ok, v = pcall(f, x, y)
  if not ok then return "failed" end
  if type(v) ~= "number" then return v end
  return (v ~= v or v == 1/0 or v == -1/0) and tostring(v == v) or v
end
function main(event)
  local x, y = event.x, event.y
  return {
    add = try(function(x, y) return x + y end, x, y), sub = try(function(x, y) return x - y end, x, y),
    mul = try(function(x, y) return x * y end, x, y), div = try(function(x, y) return x / y end, x, y),
    unm = try(function(x) return -x end, x),
    eq = x == y, kind = type(x), x = x, number = tonumber(x),
    -- The % of plain numbers is not ours, and gopher-lua rounds otherwise.
    mod = type(x) == "userdata" and try(function(x, y) return x % y end, x, y) or nil,
    text = type(x) == "userdata" and x .. "|" .. tostring(x) or nil,
    lt = type(x) == type(y) and x < y, le = type(x) == type(y) and x <= y,
  }
end`

// FuzzNumbersAgainstLuaJIT holds the numbers of the engines to each other.
func FuzzNumbersAgainstLuaJIT(f *testing.F) {
	for _, x := range []string{"9007199254740993", "-9223372036854775808", "1e400", "3.14159265358979323846", "1.5", "-0", "18446744073709551615"} {
		for _, y := range []string{"2", "-1", "0", "9223372036854775807", "0.1000000000000000055511", "9007199254740992.00"} {
			f.Add(x, y)
		}
	}
	same := engines(f, numberScript)
	f.Fuzz(func(t *testing.T, x, y string) {
		if doc := fmt.Sprintf(`{"x":%s,"y":%s}`, x, y); isNumber(x) && isNumber(y) {
			same(t, doc)
		}
	})
}

func isNumber(s string) bool {
	return json.Valid([]byte(s)) && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && s == strings.TrimSpace(s)
}

const patternScript = `
local function see(ok, ...)
  if not ok then return "failed" end
  local t = json.array()
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    t[i] = v == nil and "nil" or tostring(v)
  end
  return t
end
function main(event)
  local s, p, r = event.s, event.p, event.r
  return {
    find = see(pcall(string.find, s, p)), from = see(pcall(string.find, s, p, 3)),
    back = see(pcall(string.match, s, p, -2)), match = see(pcall(string.match, s, p)),
    gsub = see(pcall(string.gsub, s, p, r)), once = see(pcall(string.gsub, s, p, "%1", 1)),
    call = see(pcall(string.gsub, s, p, function(a, b) return b or a end)),
    gmatch = see(pcall(function()
      local all = {}
      for a, b in string.gmatch(s, p) do all[#all + 1] = tostring(a) .. "," .. tostring(b) end
      return table.concat(all, ";")
    end)),
  }
end`

// FuzzPatternsAgainstLuaJIT holds the matchers of the engines to each other.
func FuzzPatternsAgainstLuaJIT(f *testing.F) {
	for _, p := range []string{"", "^%s*(.-)%s*$", "(%w+)=(%w+)", "%b()", "[^%a-]+", "()a()", "(a)%1", "%f[%w]%w+", "[]]", "a-", ".-$", "%", "(a", "[a", "%z", "[%d-z]", "^a?b*"} {
		f.Add("hello (a(b)c) k=v aa THE x-1] ", p, "%0-%1")
	}
	for _, class := range "acdglpsuwxzACDGLPSUWXZ" { // each class, and what is not in it
		f.Add("a Z09_\t!\x01g-f", "%"+string(class)+"+", "<%0>")
	}
	f.Add("el\x0fo (a(b)c) k=v aa Tl\x0f\x0f\x0f\x0f\x0f\x0f\x0fHE x-1]", "%g[%w]%w+", "\x01\x00")
	same := engines(f, patternScript)
	f.Fuzz(func(t *testing.T, s, p, r string) {
		if len(s) > 60 || len(p) > 20 || len(r) > 20 || !utf8.ValidString(s+p+r) {
			return
		}
		doc, err := json.Marshal(map[string]string{"s": s, "p": p, "r": r})
		if err != nil {
			t.Fatal(err)
		}
		same(t, string(doc))
	})
}

// TestLongPatternsAgainstLuaJIT is FuzzPatternsAgainstLuaJIT for searches that take so long that the
// matchers remember where they failed.
func TestLongPatternsAgainstLuaJIT(t *testing.T) {
	random, same := testseed.New(t), engines(t, patternScript)
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	for range 500 {
		part := func() string { return pick("a", "b", " ", " a", "ab  ", "9") }
		s := strings.Repeat(part(), 40+random.IntN(50)) + part() + strings.Repeat(part(), random.IntN(60))
		p := pick("", "^")
		for range 1 + random.IntN(5) {
			p += pick(".-", ".*", "%s*", "%s-", "%s+", "a?", "[ab]*", "(.-)", "(%s*)", "()", "%S+", "b", "%f[%s]", "%b  ")
		}
		same(t, fmt.Sprintf(`{"s":%q,"p":%q,"r":"<%%0>"}`, s, p+pick("", "$", "9$", "b")))
	}
}

// engines loads a script on both engines and returns a check that they make the
// same of an event.
func engines(f testing.TB, text string) func(t *testing.T, doc string) {
	pureGo, jit := loadOn(f, gopherlua.Language(), text), loadOn(f, luajit.Language, text)
	return func(t *testing.T, doc string) {
		t.Helper()
		if want, got := outcome(t, pureGo, doc), outcome(t, jit, doc); got != want {
			t.Errorf("%s\n    luajit: %s\n gopherlua: %s", doc, got, want)
		}
	}
}

func loadOn(f testing.TB, lang script.Language, text string) script.Script {
	s, err := lang.Load(f.Context(), script.Code{Name: "fuzz.lua", Text: []byte(text)}, script.Options{
		Sinks:  []script.Sink{{}},
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
