package scripttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// counts are numbers of fields and elements beside those that engines count in words of 64
// bits, search 16 at a time, and grow their memory by.
var counts = []int{1, 2, 3, 15, 16, 17, 62, 63, 64, 65, 66, 127, 128, 129}

func testEdges(t *testing.T, lang script.Language, has Features) {
	t.Run("fields", func(t *testing.T) { testFieldsAtEdges(t, lang) })
	t.Run("elements", func(t *testing.T) { testElementsAtEdges(t, lang) })
	t.Run("sizes", func(t *testing.T) { testSizesAtEdges(t, lang) })
	t.Run("routed lists", func(t *testing.T) { testRoutedListsUnderLimits(t, lang, has) })
}

// testFieldsAtEdges replaces, removes, restores and adds the last fields of objects with as
// many of them, in the event and in an object of it.
func testFieldsAtEdges(t *testing.T, lang script.Language) {
	s := load(t, lang, `
function main(event)
  for _, o in ipairs({event, event.sub}) do
    local n = event.count
    o["k" .. n - 1] = "replaced"
    o["k" .. n - 2] = nil
    o["k" .. n - 3] = nil
    o["k" .. n - 3] = "restored"
    o["k" .. n] = "added"
    o["k" .. n + 1] = {x = n}
    o["k" .. n + 2] = "removed again"
    o["k" .. n + 2] = nil
    assert(o["k" .. n - 2] == nil and o["k" .. n] == "added", "k" .. n)
  end
  local seen = 0
  for k in pairs(event.sub) do seen = seen + 1 end
  event.seen = seen
  return event
end`, script.Options{})
	object := func(n int, more string, change func(fields []string) []string) string {
		var fields []string
		for i := range n {
			fields = append(fields, fmt.Sprintf(`"k%d":%d`, i, i))
		}
		if change != nil {
			fields = change(fields)
		}
		return "{" + strings.Join(fields, ",") + more + "}"
	}
	for _, n := range counts {
		change := func(fields []string) []string {
			fields[n-1] = fmt.Sprintf(`"k%d":"replaced"`, n-1)
			if n > 2 {
				fields[n-3] = fmt.Sprintf(`"k%d":"restored"`, n-3)
			}
			if n > 1 {
				fields = slices.Delete(fields, n-2, n-1)
			}
			return fields
		}
		added := fmt.Sprintf(`,"k%d":"added","k%d":{"x":%d}`, n, n+1, n)
		if n <= 2 {
			added = fmt.Sprintf(`,"k%d":"restored"`, n-3) + added
		}
		in := object(n, fmt.Sprintf(`,"sub":%s,"count":%d`, object(n, "", nil), n), nil)
		seen := n + 1
		if n <= 2 {
			seen = n + 3 - min(n-1, 1)
		}
		want := object(n, fmt.Sprintf(`,"sub":%s,"count":%d%s,"seen":%d`, object(n, added, change), n, added, seen), change)
		for i, got := range outLines(&run(t, s, in, in, in).Outputs[0]) {
			if want := fmt.Sprintf("%d %s", i, want); got != want {
				t.Errorf("%d fields:\n got %s\nwant %s", n, got, want)
			}
		}
	}
}

// testElementsAtEdges inserts, replaces and removes the last elements of arrays.
func testElementsAtEdges(t *testing.T, lang script.Language) {
	s := load(t, lang, `
function main(event)
  local l = event.list
  local n = #l
  l[n + 1] = "end"
  table.insert(l, 1, "begin")
  l[n + 1] = "last"
  assert(#l == n + 2 and l[n + 2] == "end" and l[n + 3] == nil)
  assert(not pcall(function() l[n + 4] = 1 end), "a hole")
  event.removed = {table.remove(l), table.remove(l, 1)}
  event.behind = n
  return event
end`, script.Options{})
	for _, n := range counts {
		elements := make([]string, n)
		for i := range elements {
			elements[i] = fmt.Sprint(i)
		}
		in := fmt.Sprintf(`{"list":[%s],"behind":0}`, strings.Join(elements, ","))
		elements[n-1] = `"last"`
		want := fmt.Sprintf(`{"list":[%s],"behind":%d,"removed":["end","begin"]}`, strings.Join(elements, ","), n)
		for i, got := range outLines(&run(t, s, in, in, in).Outputs[0]) {
			if want := fmt.Sprintf("%d %s", i, want); got != want {
				t.Errorf("%d elements:\n got %s\nwant %s", n, got, want)
			}
		}
	}
}

// testSizesAtEdges copies and writes strings whose event, and whose output, has about 4, 16,
// 32 and 64 KiB.
func testSizesAtEdges(t *testing.T, lang script.Language) {
	s := load(t, lang, `
function main(event)
  event.copy = event.text
  event.quoted = event.text .. '"'
  event.n = #event.text
  return event
end`, script.Options{})
	for _, size := range []int{4 << 10, 16 << 10, 32 << 10, 64 << 10} {
		for _, extra := range []int{-65, -64, -63, -33, -18, -17, -16, -15, -12, -11, -10, -2, -1, 0, 1, 2, 63, 64, 65} {
			text := strings.Repeat("x", size+extra)
			in := `{"text":"` + text + `"}`
			want := fmt.Sprintf(`0 {"text":"%s","copy":"%[1]s","quoted":"%[1]s\"","n":%d}`, text, len(text))
			if got := strings.Join(outLines(&run(t, s, in).Outputs[0]), " "); got != want {
				t.Errorf("an event of %d bytes: %d bytes came out, want %d", len(in), len(got), len(want))
			}
		}
	}
}

// testRoutedListsUnderLimits routes to lists of sinks until a limit ends it.
func testRoutedListsUnderLimits(t *testing.T, lang script.Language, has Features) {
	some := []script.Sink{{Name: "main"}, {Name: "audit"}, {Name: "cold", Routed: true}}
	names := `"main"` + strings.Repeat(`,"cold"`, 5000)
	for name, c := range map[string]struct {
		code, words string
		memory      int
		time        time.Duration
	}{
		"for ever":              {`while true do to({"main", "cold"}, event) end`, "time limit", 64 << 20, 50 * time.Millisecond},
		"for ever in pcall":     {`while true do pcall(to, {"main", "none"}, event) end`, "time limit", 64 << 20, 50 * time.Millisecond},
		"long lists of events":  {`while true do to(event.names, event) end`, "time limit", 64 << 20, 50 * time.Millisecond},
		"long lists":            {`local l = {} for i = 1, 5000 do l[i] = "main" end while true do to(l, event) end`, "time limit", 64 << 20, 50 * time.Millisecond},
		"kept":                  {`local kept = {} while true do kept[#kept + 1] = to({"main"}, event) end`, "memory", 8 << 20, time.Minute},
		"each with a new table": {`local kept = {} while true do kept[#kept + 1] = to({"cold"}, {x = #kept}) end`, "memory", 8 << 20, time.Minute},
	} {
		if c.words == "memory" && !has.Memory {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := load(t, lang, "function main(event) if event.bad then "+c.code+" end return to({\"main\", \"cold\"}, event) end", script.Options{
				Sinks: some, Limits: script.Limits{EventTime: c.time, BatchTime: 2 * time.Minute, Memory: c.memory},
			})
			testRoutedNeighbours(t, s, `{"bad":true,"names":[`+names+`]}`, c.words)
		})
	}
}

// testRoutedNeighbours runs a bad event between two good ones, which land, in two batches.
func testRoutedNeighbours(t *testing.T, s script.Script, bad, words string) {
	for range 2 {
		docs := []string{`{"n":1}`, bad, `{"n":2}`}
		in, res := batch(docs...), &event.Result{Outputs: make([]event.Output, 3)}
		if err := s.Run(t.Context(), in, res); err != nil {
			t.Fatal(err)
		}
		checkResult(t, s, docs, in, res)
		if got, want := rowsOfSink(res, 2), `0 {"n":1}, 2 {"n":2}`; got != want || rowsOfSink(res, 0) != want || res.Outputs[1].Len() != 0 {
			t.Errorf("the routed sink has %s, want %s", got, want)
		}
		if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, words) {
			t.Errorf("dead letters %v, want one about the %s", res.Dead, words)
		}
	}
}
