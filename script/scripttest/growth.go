package scripttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// manyFields returns an object with n fields, each with that value.
func manyFields(n int, value string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `,"key%d":%s`, i, value)
	}
	return "{" + out.String()[1:] + "}"
}

type linearScript struct {
	name, text string
	doc        func(n int) string
	small      int
}

// linearScripts take time in proportion to the event that doc makes for a size.
var linearScripts = []linearScript{
	{"pairs", `local n = 0 for k, v in pairs(event) do n = n + 1 end`,
		func(n int) string { return manyFields(n, "1") }, 3600},
	{"next", `local n, k, v = 0, next(event) while k do n, k, v = n + 1, next(event, k) end`,
		func(n int) string { return manyFields(n, "1") }, 3600},
	{"pairs of an object in the event", `local n = 0 for k, v in pairs(event.sub) do n = n + 1 end`,
		func(n int) string { return `{"sub":` + manyFields(n, `"x"`) + `}` }, 3600},
	{"pairs of objects in objects", `local n = 0 for k, v in pairs(event) do for k in pairs(v) do n = n + 1 end end`,
		func(n int) string { return manyFields(n, `{"a":1,"b":2}`) }, 1200},
	{"pairs of escaped keys", `local n = 0 for k, v in pairs(event) do n = n + 1 end`,
		func(n int) string { return strings.ReplaceAll(manyFields(n, "1"), "key", `\u006b\"`) }, 3600},
	{"pairs of keys that come twice", `local n = 0 for k, v in pairs(event) do n = n + 1 event[k] = v end`,
		func(n int) string {
			return strings.TrimSuffix(manyFields(n/2, "1"), "}") + "," + manyFields(n/2, "2")[1:]
		}, 3600},
	{"pairs that write", `for k, v in pairs(event) do event[k] = v + 1 end`,
		func(n int) string { return manyFields(n, "1") }, 3600},
	{"pairs that remove", `for k, v in pairs(event) do event[k] = nil end`,
		func(n int) string { return manyFields(n, "1") }, 3600},
	{"pairs that read", `local n = 0 for k in pairs(event) do n = n + event[k] end`,
		func(n int) string { return manyFields(n, "1") }, 3600},
	{"pairs that add", `for k, v in pairs(event) do event.added[k] = v end for k in pairs(event.added) do event.added[k] = nil end`,
		func(n int) string { return `{"added":{},` + manyFields(n, "1")[1:] }, 1800},
	{"fields that are added", `for i = 1, event.n do event["k" .. i] = i end for k, v in pairs(event) do event[k] = nil end`,
		func(n int) string { return fmt.Sprintf(`{"n":%d}`, n) }, 1800},
	{"ipairs of objects", `local n = 0 for i, v in ipairs(event.a) do n = n + v.x end`,
		func(n int) string { return `{"a":[` + strings.Repeat(`{"x":1},`, n) + `{"x":1}]}` }, 3600},
	{"objects of an array from its end", `local n = 0 for i = #event.a, 1, -1 do n = n + event.a[i].x end`,
		func(n int) string { return `{"a":[` + strings.Repeat(`{"x":1},`, n) + `{"x":1}]}` }, 3600},
	{"pairs of an array that write", `for i, v in pairs(event.a) do event.a[i] = v + 1 end`,
		func(n int) string { return `{"a":[` + strings.Repeat("1,", n) + "1]}" }, 3600},
}

// linearPatterns are expressions about a text s, as users trim and split it, that take time in
// proportion to it whatever is in it.
var linearPatterns = []string{
	`s:match("^%s*(.-)%s*$")`, `s:gsub("^%s*(.-)%s*$", "%1")`, `s:match("^(.-)%s*$")`, `s:match("(.-)%s*$")`,
	`s:gsub("(.-)%s*$", "%1")`, `s:gsub("^%s+", ""):gsub("%s+$", "")`, `s:gsub("%s+$", "")`, `s:find("%s*$")`,
	`s:find("%s+$")`, `s:match("^%s*(.*%S)%s*$")`, `s:match("^%s*(.*%S)")`, `s:gsub("%s+$", function() return "" end)`,
	`s:match("^(.-)%s*:%s*(.-)%s*$")`, `s:match("^%s*(.-)%s*=%s*(.-)%s*;%s*$")`, `s:gsub("%s*\n%s*", " ")`,
	`s:match("^(.*)%s+(.*)%s+(.*)x$")`, `s:match("(%s*)(%s*)(%s*)%.$")`, `s:find("%s?%s?%s?%s?%s?%s?%s?%s?%s*x$")`,
	`(function() for w in s:gmatch("(.-)%s+$") do end end)()`, `s:find("[^,]*,[^,]*,[^,]*,$")`, `s:match("^.-%f[%w]b+$")`,
}

// linear returns linearScripts, and a script for each of linearPatterns and each kind of text.
func linear() []linearScript {
	all := slices.Clone(linearScripts)
	for i, pattern := range linearPatterns {
		for _, part := range []string{" ", "a ", "b", `\n`} {
			all = append(all, linearScript{
				name: fmt.Sprintf("pattern %d over %q", i, part), text: "local s = event.s local _ = " + pattern, small: 20_000,
				doc: func(n int) string { return `{"s":" a ` + strings.Repeat(part, n/len(part)) + ` !"}` },
			})
		}
	}
	return all
}

// growth is how many times its small size a linear script's large event has, and growthMax how
// many times as long it may take: a quadratic one takes 64 times as long.
const growth, growthMax = 8, 30

// growthTime is how long a script is run again while its large event takes too long.
const growthTime = 15 * time.Second

// testGrowth runs each script on events of two sizes. The shortest of several runs counts, because
// other programs run beside the test.
func testGrowth(t *testing.T, lang script.Language) {
	limits := script.Limits{EventTime: time.Minute, BatchTime: 2 * time.Minute}
	for _, c := range linear() {
		t.Run("linear "+c.name, func(t *testing.T) {
			s := load(t, lang, "function main(event)\n"+c.text+"\nreturn nil\nend", script.Options{Limits: limits})
			docs := [2]string{c.doc(c.small), c.doc(c.small * growth)}
			took := [2]time.Duration{time.Hour, time.Hour}
			for began := time.Now(); time.Since(began) < growthTime; {
				for i, doc := range docs {
					began := time.Now()
					if res := run(t, s, doc); res.Dropped != 1 {
						t.Fatalf("%d events were dropped, want 1; dead letter: %.200s", res.Dropped, res.Dead[0].Error)
					}
					took[i] = min(took[i], time.Since(began))
				}
				if took[1] < growthMax*took[0] {
					return
				}
			}
			t.Errorf("%v for an event %d times as large as one that takes %v, want less than %d times as long", took[1], growth, took[0], growthMax)
		})
	}
}
