package nodedb

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"
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

type (
	namedString string
	namedBytes  []byte
	namedInt    int16
	namedUint   uint64
	namedFloat  float64
	namedBool   bool
)

func TestValueOfNamedTypes(t *testing.T) {
	for _, test := range []struct {
		given any
		same  any
	}{
		{namedString("x"), "x"}, {namedBytes("x"), "x"}, {namedInt(-7), -7}, {namedUint(1 << 63), "9223372036854775808"},
		{namedFloat(.5), .5}, {namedBool(true), true}, {float32(.1), .1}, {int8(-1), -1}, {uint(3), 3}, {uintptr(3), 3},
		{time.Second, 1}, {1500 * time.Millisecond, 1.5}, {-time.Nanosecond, "-.000000001"}, {time.Duration(0), 0}, {time.Hour, 3600},
	} {
		got, err := ValueOf(test.given)
		want, _ := ValueOf(test.same)
		if text, isText := test.same.(string); isText && got.Kind() == Number {
			want = ParseValue(text)
		}
		if got != want || err != nil {
			t.Errorf("ValueOf(%T %v) is %v %v, %v; want %v %v", test.given, test.given, got.Kind(), got, err, want.Kind(), want)
		}
	}
	for _, given := range []any{struct{}{}, []int{1}, map[string]int{}, new(int), complex(1, 1), [1]byte{1}} {
		if v, err := ValueOf(given); !errors.Is(err, ErrArgument) {
			t.Errorf("ValueOf(%T) is %v, %v: want an ErrArgument", given, v, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for _, d := range []time.Duration{0, 1, -1, time.Second, -1500 * time.Millisecond, 90 * time.Minute, math.MaxInt64, math.MinInt64, 1 << 62, 999999999} {
		v, err := ValueOf(d)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := v.Duration(); got != d || !ok {
			t.Errorf("%d is kept as %v, and read as %d, %t", d, v, got, ok)
		}
	}
	for _, given := range []any{nil, true, "x", "1e3", ".0000000001", 1e12, "", "-", "1.2.3"} {
		v, err := ValueOf(given)
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := v.Duration(); ok {
			t.Errorf("%v is read as the duration %v", given, d)
		}
	}
}
