package nodedb

import (
	"encoding/json"
	"math"
	"testing"
)

func TestValueOf(t *testing.T) {
	for _, test := range []struct {
		in   any
		kind Kind
		text string
	}{
		{nil, Absent, ""}, {"", String, ""}, {[]byte("a"), String, "a"}, {"5", String, "5"}, {true, Boolean, "true"}, {false, Boolean, "false"},
		{0, Number, "0"}, {math.Copysign(0, -1), Number, "0"}, {-0.5, Number, "-0.5"}, {0.30000000000000004, Number, "0.30000000000000004"},
		{1 << 53, Number, "9007199254740992"}, {1<<53 + 1, Number, "9007199254740993"}, {float64(1<<53 + 2), Number, "9007199254740994"},
		{123456789012345670, Number, "123456789012345670"}, {float64(123456789012345670), Number, "123456789012345664"},
		{1e20, Number, "100000000000000000000"}, {uint64(math.MaxUint64), String, "18446744073709551615"},
		{int64(math.MinInt64), String, "-9223372036854775808"}, {int64(1e18), Number, "1000000000000000000"},
		{1e46, Number, "10000000000000000000000000000000000000000000000"}, {1e47, String, "100000000000000000000000000000000000000000000000"},
		{Value{kind: Number, text: "0.123456789012345678"}, Number, "0.123456789012345678"},
	} {
		v, err := ValueOf(test.in)
		if err != nil || v.Kind() != test.kind || v.String() != test.text {
			t.Errorf("%v is %v %q, %v; want %v %q", test.in, v.Kind(), v, err, test.kind, test.text)
		}
	}
	for _, in := range []any{math.NaN(), math.Inf(1), struct{}{}, []int{1}} {
		if v, err := ValueOf(in); err == nil {
			t.Errorf("%v is %v", in, v)
		}
	}
}

func TestParseValue(t *testing.T) {
	for text, want := range map[string]any{
		"5": 5, "-5": -5, "0.5": 0.5, ".5": 0.5, "-.25": -0.25, "0": 0, "1000": 1000, "9007199254740993": 1<<53 + 1,
		"true": true, "false": false,
		"": "", "05": "05", "-0": "-0", "1.0": "1.0", "1.": "1.", ".": ".", "1e3": "1e3", "+1": "+1", " 1": " 1", "True": "True", "Ada": "Ada",
		"12345678901234567890": "12345678901234567890",
	} {
		v, err := ValueOf(want)
		if err != nil || ParseValue(text) != v {
			t.Errorf("%q is %v %v, want %v", text, ParseValue(text).Kind(), ParseValue(text), want)
		}
	}
}

func TestValueJSON(t *testing.T) {
	for in, want := range map[any]string{
		nil: "null", "a\"é": `"a\"é"`, 0.5: "0.5", -1: "-1", true: "true", 1e20: "100000000000000000000",
	} {
		v, err := ValueOf(in)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(v); err != nil || string(text) != want {
			t.Errorf("%v becomes %s, %v", in, text, err)
		}
	}
}
