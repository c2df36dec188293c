package scripttest

import (
	"strings"
	"testing"

	"github.com/perigeedb/perigee/script"
)

// malformed are lines that are no event, each with a part of the reason.
var malformed = []struct{ name, doc, reason string }{
	{"empty", ``, "empty"},
	{"white space", " \n", "empty"},
	{"text", `hello`, "not a JSON object"},
	{"array", `[1,2]`, "not a JSON object"},
	{"string", `"a"`, "not a JSON object"},
	{"number", `1`, "not a JSON object"},
	{"null", `null`, "not a JSON object"},
	{"byte order mark", "\xef\xbb\xbf{}", "not a JSON object"},
	{"cut short", `{"a":`, "too early"},
	{"cut in a string", `{"a":"x`, "too early"},
	{"no colon", `{"a" 1}`, `":"`},
	{"no comma", `{"a":1 "b":2}`, `","`},
	{"comma before the end", `{"a":1,}`, "key"},
	{"comma before the end of an array", `{"a":[1,]}`, "value"},
	{"bare key", `{a:1}`, "key"},
	{"single quotes", `{'a':1}`, "key"},
	{"wrong word", `{"a":nul}`, "value"},
	{"capital word", `{"a":True}`, "value"},
	{"nan", `{"a":NaN}`, "value"},
	{"leading zero", `{"a":01}`, "number"},
	{"plus", `{"a":+1}`, "value"},
	{"bare minus", `{"a":-}`, "number"},
	{"dot without digits", `{"a":1.}`, "number"},
	{"leading dot", `{"a":.5}`, "value"},
	{"bare exponent", `{"a":1e}`, "number"},
	{"hexadecimal", `{"a":0x10}`, ""},
	{"unknown escape", `{"a":"\x"}`, "escape"},
	{"short escape", `{"a":"\u12"}`, "escape"},
	{"tab in a string", "{\"a\":\"\t\"}", "control character"},
	{"newline in a key", "{\"a\n\":1}", "control character"},
	{"bad UTF-8", "{\"a\":\"M\xfcnchen\"}", "UTF-8"},
	{"bad UTF-8 in a key", "{\"M\xfcnchen\":1}", "UTF-8"},
	{"overlong UTF-8", "{\"a\":\"\xc0\xaf\"}", "UTF-8"},
	{"surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "UTF-8"},
	{"beyond Unicode", "{\"a\":\"\xf4\x90\x80\x80\"}", "UTF-8"},
	{"cut UTF-8", "{\"a\":\"\xe2\x82\"}", "UTF-8"},
	{"trailing", `{"a":1} x`, "after the end"},
	{"two documents", `{"a":1}{"b":2}`, "after the end"},
	{"comment", `{"a":1} // x`, "after the end"},
	{"too deep", `{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, "deep"},
}

// testParse passes malformed lines between good ones.
func testParse(t *testing.T, lang script.Language) {
	s := load(t, lang, "function main(event) return event end", script.Options{})
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			res := run(t, s, `{"good":1}`, c.doc, `{"good":2}`)
			if got := res.Outputs[0].Len(); got != 2 {
				t.Errorf("%d documents came out, want the 2 good ones", got)
			}
			if len(res.Dead) != 1 {
				t.Fatalf("%d dead letters, want 1", len(res.Dead))
			}
			if dead := res.Dead[0]; dead.Stage != "parse" || !strings.Contains(dead.Error, c.reason) {
				t.Errorf("dead letter is %q, want stage parse and %q", &dead, c.reason)
			}
		})
	}
	t.Run("deep but not too deep", func(t *testing.T) {
		doc := strings.Repeat(`{"a":`, 200) + strings.Repeat("[", 200) + strings.Repeat("]", 200) + strings.Repeat("}", 200)
		res := run(t, s, doc)
		if res.Outputs[0].Len() != 1 || string(res.Outputs[0].Doc(0)) != doc {
			t.Errorf("a document of 400 levels did not pass: %v", res.Dead)
		}
	})
}
