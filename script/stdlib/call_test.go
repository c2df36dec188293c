package stdlib

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCall(t *testing.T) {
	deep := any("bottom")
	for range depthMax {
		deep = []any{deep}
	}
	cycle := map[string]any{}
	cycle["x"] = cycle
	tests := []struct {
		name    string
		results values
		want    values
		err     string
	}{
		{"as they are", values{nil, true, 1.5, "x"}, values{nil, true, 1.5, "x"}, ""},
		{"none", values{}, nil, ""}, // and nothing is allocated for them
		{"integers", values{int8(-1), uint16(2), 3, int64(math.MinInt64)}, values{-1.0, 2.0, 3.0, json.Number("-9223372036854775808")}, ""},
		{"large integers", values{int64(math.MaxInt64), uint64(math.MaxUint64)}, values{json.Number("9223372036854775807"), json.Number("18446744073709551615")}, ""},
		{"numbers as text", values{json.Number("1.0"), json.Number("0.10000000000000000001")}, values{1.0, json.Number("0.10000000000000000001")}, ""},
		{"no number as text", values{json.Number("0x1")}, nil, `"0x1"`},
		{"a word as text", values{json.Number("null")}, nil, "null"},
		{"inside", values{[]any{uint(1), map[string]any{"a": float32(2)}}}, values{[]any{1.0, map[string]any{"a": 2.0}}}, ""},
		{"unknown", values{struct{}{}}, nil, "struct {}"},
		{"unknown inside", values{[]any{map[string]any{"a": errors.New("x")}}}, nil, "errorString"},
		{"too deep", values{deep}, nil, "deeper"},
		{"a cycle", values{cycle}, nil, "deeper"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := func(context.Context, []any) ([]any, error) { return test.results, nil }
			got, err := Call(t.Context(), "m.f", f, nil)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || !strings.HasPrefix(err.Error(), "m.f: ") {
					t.Errorf("error is %v, want m.f and %q", err, test.err)
				}
				return
			}
			if diff := cmp.Diff([]any(test.want), got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
	panics := func(context.Context, []any) ([]any, error) { panic("ball") }
	if _, err := Call(t.Context(), "m.f", panics, nil); err == nil || err.Error() != "m.f: panic: ball" {
		t.Errorf("error is %v", err)
	}
}
