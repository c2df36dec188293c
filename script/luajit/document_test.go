//go:build cgo && luajit

package luajit_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// addedKeys are keys that a script writes: alike, long, escaped, or none at all, and more
// of them than are remembered.
func addedKeys() []string {
	keys := slices.Concat(twins(7, 4), twins(42, 4), []string{"", "a", "ab", "é", "a\"b", "a\\", "new\nline", "日本語のキー", "id"})
	for _, n := range []int{15, 16, 17, 31, 32, 43, 44, 45, 46, 63, 200} {
		keys = append(keys, strings.Repeat("k", n), strings.Repeat("é", n/2))
	}
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("key-%d", i))
	}
	return keys
}

// addedValue is a scalar of any length.
func addedValue(random *rand.Rand) any {
	switch random.IntN(6) {
	case 0:
		return float64(random.IntN(1000)) / 8
	case 1:
		return random.IntN(2) == 0
	case 2:
		return strings.Repeat("ü", random.IntN(20)) + "x"
	case 3:
		return strings.Repeat("a", random.IntN(40)) + `"\` + strings.Repeat("b", random.IntN(40))
	}
	return strings.Repeat("0123456789", 5)[:random.IntN(50)]
}

// TestAddedFields writes fields whose keys come from the event, so that a string of the
// script is soon gone, and another one where it was.
func TestAddedFields(t *testing.T) {
	const text = `
function main(event)
  for i = 1, #event.keys do
    event[event.keys[i]] = event.values[i]
  end
  return event
end`

	random := rand.New(rand.NewPCG(5, 6))
	keys := addedKeys()
	in, want := &event.Batch{}, []string{}
	for range 3000 {
		doc := map[string]any{"id": 1.0}
		var names []string
		var values []any
		for range random.IntN(12) {
			names, values = append(names, keys[random.IntN(len(keys))]), append(values, addedValue(random))
		}
		doc["keys"], doc["values"] = names, values
		if names == nil {
			doc["keys"], doc["values"] = []any{}, []any{}
		}
		before, _ := json.Marshal(doc)
		in.Append(before)
		for i, name := range names {
			doc[name] = values[i]
		}
		after, _ := json.Marshal(doc)
		want = append(want, canonical(t, after))
	}
	in.Range.Count = uint64(len(want))
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		testAlike(t, lang, text, in, want)
	}
}

// TestColumnsOfManyForms takes columns from documents that come in runs of one form, of
// which the next may have the same keys in other places, twice, or spelled otherwise; and
// the script writes to some of them, and drops others.
func TestColumnsOfManyForms(t *testing.T) {
	const edit = `
    if e.write == 9 then return nil end
    if e.write == 1 then e.a = "written" elseif e.write == 2 then e.b, e.new = nil, e.a
    elseif e.write == 3 then e.new, e.more = "n", e.b elseif e.write == 4 then e.more, e.new = "m", "n" end `

	random := rand.New(rand.NewPCG(7, 8))
	fields := []string{`"a":%s`, `"b":%s`, `"\u0061":%s`, ` "a" : %s`, `"b":{"c":%s}`, `"c":%s`, `"d":[%s]`, `"write":%s`, `"a2":%s`, `"b2":%s`}
	values := []string{`1`, `-20`, `"text"`, `"a\u0020b"`, `null`, `true`, `""`, `2.5`, `"2026-01-02T03:04:05Z"`}
	in := &event.Batch{}
	for range 100 {
		form := make([]string, 1+random.IntN(6))
		for i := range form {
			form[i] = fields[random.IntN(len(fields))]
		}
		dropped := random.IntN(2) * 6
		for i := range dropped + 1 + random.IntN(9) {
			doc := "{" + strings.Join(form, ",")
			for strings.Contains(doc, "%s") {
				doc = strings.Replace(doc, "%s", values[random.IntN(len(values))], 1)
			}
			write := random.IntN(5)
			if i < dropped {
				write = 9
			}
			in.Append(fmt.Appendf(nil, `%s,"write":%d}`, doc, write))
		}
	}
	in.Range.Count = uint64(in.Len())
	var sinks []script.Sink
	for _, kind := range []event.Type{event.Int64, event.String, event.Timestamp, event.JSON} {
		for _, path := range [][]string{{"a"}, {"b"}, {"b", "c"}, {"c"}, {"new"}, {"more"}, {"a2"}} {
			name := fmt.Sprint(kind, path)
			sinks = append(sinks, script.Sink{Name: name, Columns: []event.Column{{Name: name, Path: path, Type: kind}}})
		}
	}
	direct := columnsOf(t, in, sinks, "function main(e) "+edit+" return e end")
	listed := columnsOf(t, in, sinks, "function main(e) "+edit+" return {e} end")
	if diff := cmp.Diff(listed, direct); diff != "" {
		t.Errorf("(-in a list +itself)\n%.2000s", diff)
	}
}
