package pure_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/perigeedb/perigee/internal/document/pure"
)

func TestExact(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "-0": true, "0.000": true, "0e999999": true, "1.50": true, "0.1": true, "1e23": true,
		"9007199254740992": true, "9007199254740993": false, "9007199254740994": true, "-9007199254740993": false,
		"9007199254740993.0": false, "90071992547409900": false, "90071992547409904": true, "1700000000000000000": true, "1700000000000000001": false,
		"9223372036854775807": false, "9223372036854775808": false, "20000000000000000000": true,
		"0.10000000000000001": true, "0.100000000000000012": false, "3.14159265358979323846": false,
		"1e400": false, "-1e400": false, "1e-400": false, "5e-324": true, "1.7976931348623157e308": true,
		"1e99999999999999999999": false, "100000000000000000000e-20": true,
	} {
		x, got := pure.Exact(text)
		if got != want {
			t.Errorf("Exact(%s) is %v %v, want %v", text, x, got, want)
		}
	}
}

func TestAppendNumber(t *testing.T) {
	for want, x := range map[string]float64{
		"0": math.Copysign(0, -1), "-1": -1, "100": 100, "9007199254740992": 1 << 53, "4611686018427387904": 1 << 62,
		"1e+20": 1e20, "1e-06": 1e-6, "0.001": 0.001, "0.3333333333333333": 1.0 / 3, "4.94065645841247e-324": 5e-324,
		"1.7976931348623157e+308": math.MaxFloat64, "123456789.125": 123456789.125, "-2.5e-10": -2.5e-10,
	} {
		if got := string(pure.AppendNumber(nil, x)); got != want {
			t.Errorf("%v is written %s, want %s", x, got, want)
		}
	}
}

func TestCompare(t *testing.T) {
	ascending := []string{
		"-1e400", "-123456789012345678901234567890", "-9007199254740993", "-1.5", "-1e-400", "0", "1e-400",
		"3.14159265358979323846", "3.14159265358979323847", "10", "9007199254740993", "123456789012345678901234567890", "1e400",
	}
	for i, a := range ascending {
		for k, b := range ascending {
			if got := pure.Compare(a, b); (got < 0) != (i < k) || (got == 0) != (i == k) {
				t.Errorf("Compare(%s, %s) is %d", a, b, got)
			}
		}
	}
	for _, same := range [][2]string{{"0", "-0.0e5"}, {"100", "1e2"}, {"1.50", "15e-1"}, {"9007199254740993", "9007199254740993.00"}} {
		if got := pure.Compare(same[0], same[1]); got != 0 {
			t.Errorf("Compare(%s, %s) is %d, want 0", same[0], same[1], got)
		}
	}
}

func TestInt64(t *testing.T) {
	for _, c := range []struct {
		text      string
		v         int64
		ok, whole bool
	}{
		{"-9223372036854775808", math.MinInt64, true, true},
		{"9223372036854775808", 0, false, true},
		{"1e400", 0, false, true},
		{"1.50e1", 15, true, true},
		{"1.55e1", 0, false, false},
		{"0e-999999999999", 0, true, true},
		{"1e-999999999999", 0, false, false},
	} {
		v, ok, whole := pure.Int64(c.text)
		if ok != c.ok || whole != c.whole || ok && v != c.v {
			t.Errorf("Int64(%s) is %d %v %v, want %d %v %v", c.text, v, ok, whole, c.v, c.ok, c.whole)
		}
	}
}

// FuzzNumber: what is written reads as the same number, and exact numbers are
// those that come back.
func FuzzNumber(f *testing.F) {
	for _, x := range []float64{0, 1.5, 1 << 53, 1e23, 5e-324, -math.MaxFloat64, 9.2e18, 1.0 / 3} {
		f.Add(math.Float64bits(x))
	}
	f.Fuzz(func(t *testing.T, bits uint64) {
		x := math.Float64frombits(bits)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return
		}
		text := string(pure.AppendNumber(nil, x))
		if y, err := strconv.ParseFloat(text, 64); err != nil || y != x {
			t.Errorf("%v is written %s", x, text)
		}
		if y, ok := pure.Exact(text); !ok || y != x {
			t.Errorf("%s, written for %v, reads as %v %v", text, x, y, ok)
		}
	})
}
