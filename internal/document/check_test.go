package document_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perigeedb/perigee/internal/document"
)

// check checks one document.
func check(doc []byte) error {
	rejected, err := document.NewChecker().Check(doc, []uint32{uint32(len(doc))})
	if err == nil && len(rejected) > 0 {
		err = errors.New(rejected[0].Reason)
	}
	return err
}

func TestCheck(t *testing.T) {
	deep := func(n int) string {
		return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1)
	}
	long := strings.Repeat("x", 200)
	for _, tt := range []struct{ doc, want string }{
		{`{}`, ""},
		{` {"a" : [ 1 , -2.5e+3, "x", true, false, null, {}, [] ] } `, ""},
		{"{\n\t\"a\": 1,\r\n\t\"b\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud800\"\n}", ""},
		{`{"é":"日本 😀"}`, ""},
		{`{"` + long + `\\":"` + long + `\""}`, ""},
		{deep(512), ""},
		{deep(513), "nested deeper than 512 (at byte 2560)"},
		{``, "the document is empty (at byte 0)"},
		{"  \n", "the document is empty (at byte 0)"},
		{`[1]`, "not a JSON object but an array: send each element as an event of its own (in a file: one object per line) (at byte 0)"},
		{" [", "not a JSON object but an array: send each element as an event of its own (in a file: one object per line) (at byte 1)"},
		{"\xef\xbb\xbf{}", "not a JSON object but a byte-order mark: write UTF-8 without one (at byte 0)"},
		{"\xff\xfe{\x00}\x00", "not a JSON object but a byte-order mark: write UTF-8 without one (at byte 0)"},
		{"\xfe\xff\x00{\x00}", "not a JSON object but a byte-order mark: write UTF-8 without one (at byte 0)"},
		{"\xef\xbb", "not a JSON object: an event must start with { (at byte 0)"},
		{"\x1f\x8b\x08\x00", "not a JSON object but gzip data: send it uncompressed (at byte 0)"},
		{"\x1f", "not a JSON object: an event must start with { (at byte 0)"},
		{`hello`, "not a JSON object: an event must start with { (at byte 0)"},
		{`{`, "the document ends too early (at byte 1)"},
		{`{"a":1`, "the document ends too early (at byte 6)"},
		{`{"a":[{}]`, "the document ends too early (at byte 9)"},
		{`{"a":[{}}`, `expected "," or the closing bracket (at byte 8)`},
		{`{"a":"b}`, "the document ends too early (at byte 8)"},
		{`{"a":tru`, "the document ends too early (at byte 8)"},
		{`{"a":truE}`, "expected a value (at byte 8)"},
		{`{"a":1} x`, "data after the end of the document (at byte 8)"},
		{`{"a":1} {"b":2}`, "data after the end of the document (at byte 8)"},
		{`{"a":1}}`, "data after the end of the document (at byte 7)"},
		{`{a:1}`, "expected a key in double quotes (at byte 1)"},
		{`{"a":1,}`, "expected a key in double quotes (at byte 7)"},
		{`{"a" 1}`, `expected ":" after the key (at byte 5)`},
		{`{"a":1 "b":2}`, `expected "," or the closing bracket (at byte 7)`},
		{`{"a":}`, "expected a value (at byte 5)"},
		{`{"a":[1,]}`, "expected a value (at byte 8)"},
		{`{"a":'x'}`, "expected a value (at byte 5)"},
		{`{"a":01}`, "not a JSON number (at byte 6)"},
		{`{"a":-}`, "not a JSON number (at byte 6)"},
		{`{"a":1.}`, "not a JSON number (at byte 7)"},
		{`{"a":1e}`, "not a JSON number (at byte 7)"},
		{`{"a":.5}`, "expected a value (at byte 5)"},
		{`{"a":"\x"}`, "invalid escape in a string (at byte 6)"},
		{`{"a":"\u12g4"}`, "invalid escape in a string (at byte 6)"},
		{"{\"a\":\"x\ny\"}", `control character in a string: write it as \u00XX (at byte 7)`},
		{"{\"a\":\"x\xffy\"}", "invalid UTF-8 (at byte 7)"},
		{"{\"a\":\"\xc0\xaf\"}", "invalid UTF-8 (at byte 6)"},
		{"{\"a\":\"\xed\xa0\x80\"}", "invalid UTF-8 (at byte 6)"},
		{"{\"a\":\"\xf4\x90\x80\x80\"}", "invalid UTF-8 (at byte 6)"},
	} {
		got := ""
		if err := check([]byte(tt.doc)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%.60q: got %q, want %q", tt.doc, got, tt.want)
		}
	}
}

// FuzzCheck compares the acceptance of documents with encoding/json, which differs only in that it
// accepts invalid UTF-8 and nests deeper.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, `{"a":[1,{"b":"\u00e9\\"}],"c":-1.5e+3}`, `{"a":"x`, `{"a":01}`,
		"{\"k\":\"v\x01\"}", "{\"k\":\"\xff\"}", `{"a":1}x`, ` { "a" : true , "b" : null } `, `{"a":"\ud800"}`,
		`{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\\"":"\\\\\\\""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if bytes.Count(doc, []byte("["))+bytes.Count(doc, []byte("{")) > 512 {
			return
		}
		trimmed := bytes.TrimLeft(doc, " \t\r\n")
		want := json.Valid(doc) && utf8.Valid(doc) && len(trimmed) > 0 && trimmed[0] == '{'
		if err := check(doc); (err == nil) != want {
			t.Errorf("%q: got %v, want valid %v", doc, err, want)
		}
	})
}
