package goplugin

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/internal/document"
)

func TestNumberOf(t *testing.T) {
	for text, want := range map[string]any{
		"0": int64(0), "-0": int64(0), "12": int64(12), "-9223372036854775808": int64(math.MinInt64),
		"9223372036854775808": json.Number("9223372036854775808"), "9200000000000000000": int64(9200000000000000000),
		"1.0": 1.0, "0.1": 0.1, "1e2": 100.0, "1E+2": 100.0, "-1.5e-3": -0.0015, "12345678.1234567": 12345678.1234567,
		"0.30000000000000004": 0.30000000000000004, "0.3000000000000000444": json.Number("0.3000000000000000444"),
		"1e400": json.Number("1e400"), "-0.0": math.Copysign(0, -1), "20000000000000000000": 2e19,
	} {
		row := new(decoder).decode([]byte(`{"n":` + text + `}`))
		if diff := cmp.Diff(want, row["n"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// FuzzDecode holds the decoder to encoding/json, for every document that is checked
// to be good.
func FuzzDecode(f *testing.F) {
	for _, doc := range []string{
		`{}`, ` { } `, `{"a":[],"b":{},"c":[[],[{}]]}`, `{"a":1,"a":2}`, `{ "a" : [ 1 , 2.5 , true , false , null ] , "b" : "x" }`,
		`{"\u0061\n":"\"\\\/\b\f\n\r\t\ud83d\ude00\ud800"}`, `{"n":-1e-400,"m":123456789012345678901234567890}`, "{\"a\":1}\n\t\r ",
		`{"a":{"b":[{"c":"]}"}]},"d":"é"}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if rejected, err := document.NewChecker().Check(doc, []uint32{uint32(len(doc))}); err != nil || len(rejected) > 0 {
			return
		}
		model := json.NewDecoder(bytes.NewReader(doc))
		model.UseNumber()
		var want map[string]any
		if err := model.Decode(&want); err != nil {
			t.Fatalf("a good document is refused: %v", err)
		}
		if diff := cmp.Diff(numbers(want), any(new(decoder).decode(doc))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", doc, diff)
		}
	})
}

// numbers gives the numbers that encoding/json has kept as text their Go types.
func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		text := []byte(v)
		return numberOf(string(v), !bytes.ContainsAny(text, ".eE"), bytes.ContainsAny(text, "eE"))
	}
	return value
}
