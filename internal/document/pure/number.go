package pure

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// Exact parses a JSON number and reports whether a double represents it exactly enough: a 64-bit
// integer must be equal; any other number must have at most 17 digits, and the double must print as
// the same digits.
func Exact(text string) (float64, bool) {
	x, err := strconv.ParseFloat(text, 64)
	want := readDecimal(text)
	switch {
	case want.digits == "":
		return x, true
	case err != nil || len(want.digits) > 19:
		return x, false
	case want.whole && math.Abs(x) < wholeMax:
		return x, strconv.FormatInt(int64(x), 10) == text
	case len(want.digits) > 17:
		return x, false
	}
	got := readDecimal(strconv.FormatFloat(x, 'e', len(want.digits)-1, 64))
	return x, got.digits == want.digits && got.exp == want.exp
}

// wholeMax is the magnitude below which integers are written in full.
const wholeMax = 1 << 63

// AppendNumber appends a finite number: 64-bit integers in full, others with the fewest
// of 15 to 17 digits that parse to the same number. Zero has no sign.
func AppendNumber(out []byte, x float64) []byte {
	if math.Abs(x) < wholeMax && x == math.Trunc(x) {
		return strconv.AppendInt(out, int64(x), 10)
	}
	for digits := 15; ; digits++ {
		from := len(out)
		out = strconv.AppendFloat(out, x, 'g', digits, 64)
		if digits == 17 {
			return out
		}
		if y, _ := strconv.ParseFloat(string(out[from:]), 64); y == x {
			return out
		}
		out = out[:from]
	}
}

// A decimal is 0.digits·10^exp, without zeros at either end of digits.
type decimal struct {
	minus  bool
	digits string // "" for zero
	exp    int
	whole  bool // written without point and exponent
}

// expMax limits exponents: numbers beyond it are infinite or zero as doubles.
const expMax = 100_000

// readDecimal reads a well-formed JSON number.
func readDecimal(text string) decimal {
	var x decimal
	text, x.minus = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	whole, part, pointed := strings.Cut(mantissa, ".")
	x.whole = !pointed && exponent == ""
	digits := strings.TrimLeft(whole+part, "0")
	x.exp = len(whole) - (len(whole+part) - len(digits)) + readExponent(exponent)
	x.digits = strings.TrimRight(digits, "0")
	if x.digits == "" {
		x.exp = 0
	}
	return x
}

func readExponent(text string) int {
	text, minus := strings.CutPrefix(text, "-")
	e := 0
	for _, c := range strings.TrimPrefix(text, "+") {
		e = min(e*10+int(c-'0'), expMax)
	}
	if minus {
		return -e
	}
	return e
}

// Int64 parses a JSON number with an integer value in any spelling. ok reports whether it is an
// int64, whole whether it is an integer of any size.
func Int64(text string) (v int64, ok, whole bool) { return readDecimal(text).int64() }

func (x decimal) int64() (v int64, ok, whole bool) {
	switch {
	case x.digits == "":
		return 0, true, true
	case x.exp < len(x.digits):
		return 0, false, false
	case x.exp > 19:
		return 0, false, true
	}
	text := x.digits + strings.Repeat("0", x.exp-len(x.digits))
	if x.minus {
		text = "-" + text
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil, true
}

// Compare compares two JSON numbers by value.
func Compare(a, b string) int {
	x, y := readDecimal(a), readDecimal(b)
	if sx, sy := x.sign(), y.sign(); sx != sy || sx == 0 {
		return sx - sy
	}
	order := x.compare(y)
	if x.minus {
		return -order
	}
	return order
}

func (x decimal) sign() int {
	switch {
	case x.digits == "":
		return 0
	case x.minus:
		return -1
	}
	return 1
}

// compare compares the magnitudes.
func (x decimal) compare(y decimal) int {
	return cmp.Or(cmp.Compare(x.exp, y.exp), strings.Compare(x.digits, y.digits))
}
