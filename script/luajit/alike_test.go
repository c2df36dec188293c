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
