//go:build cgo && luajit

package luajit_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

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

// TestAlikeDocuments runs documents whose keys are hard to tell apart through a
// script that reads and removes by all of them: where a key was found in the
// document before must not mislead, however alike the two are.
func TestAlikeDocuments(t *testing.T) {
	const events = 4000
	random := rand.New(rand.NewPCG(1, 2))
	keys := slices.Concat(twins(7, 4), twins(42, 4))
	text := `
local keys = {"` + strings.Join(keys, `", "`) + `"}
function main(event)
  local seen = {}
  for i, key in ipairs(keys) do
    seen[key] = event[key]
    if i % 2 == 0 then event[key] = nil end
  end
  return {seen = seen, left = event}
end`

	in, want := &event.Batch{}, make([]string, 0, events)
	var some []string
	for range events {
		if random.IntN(2) == 0 {
			some = make([]string, 1+random.IntN(4))
			for i := range some {
				some[i] = keys[random.IntN(len(keys))]
			}
		}
		doc, all := nestSome(random, some)
		in.Append([]byte(doc))
		left := maps.Clone(all)
		for i := 1; i < len(keys); i += 2 {
			delete(left, keys[i])
		}
		line, err := json.Marshal(map[string]any{"seen": all, "left": left})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(line))
	}
	in.Range.Count = events
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		testAlike(t, lang, text, in, want)
	}
}

// twins returns n keys whose fingerprint is mark, as scan_mark of scan.h makes it.
func twins(mark uint32, n int) []string {
	var keys []string
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprintf("k%04d", i)
		x := binary.LittleEndian.Uint32([]byte(key)) + binary.LittleEndian.Uint32([]byte(key[1:]))*5 + 5
		if x*0x9E3779B1>>24 == mark {
			keys = append(keys, key)
		}
	}
	return keys
}

// nestSome makes a document with these keys in their order, some of them in an
// object below the one before, and says what can be read of it.
func nestSome(random *rand.Rand, keys []string) (string, map[string]any) {
	all, fields := map[string]any{}, []string{}
	for i := 0; i < len(keys); i++ {
		key, value := keys[i], any(float64(random.IntN(10)))
		if i+1 < len(keys) && random.IntN(3) == 0 {
			i++
			value = map[string]any{keys[i]: value}
		}
		text, _ := json.Marshal(value)
		fields = append(fields, fmt.Sprintf("%q:%s", key, text))
		all[key] = value
	}
	return "{" + strings.Join(fields, ",") + "}", all
}

func testAlike(t *testing.T, lang script.Language, text string, in *event.Batch, want []string) {
	s, err := lang.Load(t.Context(), script.Code{Name: "alike.lua", Text: []byte(text)}, script.Options{Sinks: []script.Sink{{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	res := &event.Result{Outputs: make([]event.Output, 1)}
	if err := s.Run(t.Context(), in, res); err != nil || len(res.Dead) > 0 {
		t.Fatal(err, res.Dead)
	}
	for i := range want {
		got := canonical(t, res.Outputs[0].Doc(i))
		if got != want[i] {
			t.Fatalf("%s: %s became %s, want %s", lang.Name, in.Doc(i), got, want[i])
		}
	}
}

// canonical sorts the fields, and keeps the last of those with the same key.
func canonical(t *testing.T, doc []byte) string {
	var all map[string]any
	if err := json.Unmarshal(doc, &all); err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// TestWrittenDocuments writes to fields anywhere in documents of about as many values
// as the encoder remembers in one word. The first letter of a key says what becomes of
// its field: k stays, x is removed, w is written, r is removed and then written.
func TestWrittenDocuments(t *testing.T) {
	const text = `
local function change(object)
  object.xadded = 1
  for key, value in pairs(object) do
    if type(value) == "table" then change(value) end
    local what = key:sub(1, 1)
    if what == "x" or what == "r" then object[key] = nil end
    if what == "w" or what == "r" then object[key] = "new" end
  end
end
function main(event)
  change(event)
  return event
end`

	random := rand.New(rand.NewPCG(3, 4))
	in, want := &event.Batch{}, []string{}
	for range 1000 {
		left := 60 + random.IntN(10)
		doc, written := writtenObject(random, &left)
		for range 1 + random.IntN(7) { // of one form
			in.Append([]byte(doc))
			want = append(want, canonical(t, []byte(written)))
		}
	}
	in.Range.Count = uint64(len(want))
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		testAlike(t, lang, text, in, want)
	}
}

// writtenObject makes an object of at most as many values as are left, and says what
// the script makes of it.
func writtenObject(random *rand.Rand, left *int) (before, after string) {
	var fields, kept []string
	what := 'k'
	for *left > 0 && random.IntN(100) > 0 {
		if random.IntN(3) == 0 { // else as the one before
			what = rune("kxwr"[random.IntN(4)])
		}
		*left--
		key := fmt.Sprintf(`"%c%d":`, what, *left)
		value, changed := "1", "1"
		if random.IntN(6) == 0 {
			value, changed = writtenObject(random, left)
		}
		fields = append(fields, key+value)
		switch what {
		case 'k':
			kept = append(kept, key+changed)
		case 'w', 'r':
			kept = append(kept, key+`"new"`)
		}
	}
	return "{" + strings.Join(fields, ",") + "}", "{" + strings.Join(kept, ",") + "}"
}
