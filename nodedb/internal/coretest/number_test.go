//go:build cgo && lmdb

package coretest

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/nodedb"
)

// sums are results of a live M's $INCREMENT: the value, the addend, the sum.
var sums = [][3]string{
	{"", "1", "1"}, {"abc", "1", "1"}, {"3 apples", "1", "4"}, {"3 apples", "2", "5"}, {"", "2 pears", "2"}, {"", "abc", "0"}, {"", "", "0"},
	{"", "-0", "0"}, {"1.0", "1", "2"}, {"1.0", "0", "1"}, {"abc", "0", "0"}, {"007", "0", "7"}, {"1E3", "0", "1000"}, {"01", "1", "2"},
	{"-0", "1", "1"}, {"1E3", "1", "1001"}, {"1E+3", "1", "1001"}, {"1E-3", "1", "1.001"}, {"1e3", "1", "2"}, {"1E", "1", "2"}, {"1E-", "1", "2"},
	{"--5", "1", "6"}, {"++5", "1", "6"}, {"+-5", "1", "-4"}, {"5", "--5", "10"}, {"-", "1", "1"}, {"+", "1", "1"}, {".", "1", "1"},
	{"..5", "1", "1"}, {"  7", "1", "1"}, {"$5", "1", "1"}, {"0x10", "1", "1"}, {"inf", "1", "1"}, {"nan", "1", "1"}, {"-.5x", "1", ".5"},
	{"5 ", "1", "6"}, {"1,000", "1", "2"}, {"", ".1", ".1"}, {".1", ".1", ".2"}, {".2", ".1", ".3"}, {".3", "-.3", "0"}, {"5", "-5", "0"},
	{"-1.5", "1", "-.5"}, {"100000000000000000000", "1", "100000000000000000000"}, {"1E20", "1000", "100000000000000001000"},
	{"123456789012345678", "1", "123456789012345679"}, {"123456789012345678", ".5", "123456789012345678"},
	{"12345678901234567.8", ".26", "12345678901234568"}, {"12345678901234567.8", ".05", "12345678901234567.8"},
	{"12345678901234567.8", "-.05", "12345678901234567.8"}, {".123456789012345678", "1", "1.12345678901234567"},
	{"99999999999999999.9", "1", "100000000000000000"}, {"999999999999999999", "1", "1000000000000000000"},
	{"999999999999999999", "2", "1000000000000000000"}, {"999999999999999999", "999999999999999999", "1999999999999999990"},
	{"-999999999999999999", "-1", "-1000000000000000000"}, {"1234567890123456789", "0", "1234567890123456780"},
	{"1234567890123456785", "0", "1234567890123456780"}, {"1999999999999999999", "1999999999999999999", "3999999999999999980"},
	{".999999999999999999", "1E-18", "1"}, {".99999999999999999", "1.23E-18", ".999999999999999991"},
	{"1", "1E-17", "1.00000000000000001"}, {"1", "-1E-17", ".99999999999999999"}, {"1", "1E-18", "1"}, {"1", "-1E-18", "1"}, {"1", "-1E-19", "1"},
	{"100000000000000001", ".5", "100000000000000001"}, {"100000000000000001", "-.5", "100000000000000001"},
	{"-100000000000000001", ".5", "-100000000000000001"}, {"1E46", "1", "1" + repeat("0", 46)},
	{"99999999999999999E29", "1E29", "1" + repeat("0", 46)}, {"1E-43", "1E-43", "." + repeat("0", 42) + "2"}, {"1E-43", "-1E-43", "0"},
	{"1E-44", "0", "0"}, {"1E-50", "1", "1"}, {"0", "-1E-19", "-." + repeat("0", 18) + "1"}, {"1E-20", "1E-3", ".00100000000000000001"},
	{"1", "1E20", "100000000000000000000"}, // M itself returns nothing here
	{"1E47", "1", "NDB_E_NUMBER"}, {"1E999", "1", "NDB_E_NUMBER"}, {"1", "1E99999999999999999999", "NDB_E_NUMBER"}, {"9E46", "1E46", "NDB_E_NUMBER"},
	{"0E999", "1", "1"}, {"1E-99999999999999999999", "1", "1"}, {"1.1E-43", "-1E-43", "0"},
}

func TestNumberAdd(t *testing.T) {
	for _, sum := range sums {
		got, err := coreNumberAdd(str(sum[0]), str(sum[1]))
		if code, isError := strings.CutPrefix(sum[2], "NDB_"); isError {
			if err == nil || !strings.HasPrefix(err.Error(), "NDB_"+code) {
				t.Errorf("%q + %q: %+v, %v, want %s", sum[0], sum[1], got, err, sum[2])
			}
			continue
		}
		if text, textErr := coreNumberText(got); err != nil || textErr != nil || text != sum[2] {
			t.Errorf("%q + %q: %q, %v, want %s", sum[0], sum[1], text, err, sum[2])
		}
	}
	for _, test := range []struct {
		value, by, want coreScalar
	}{
		{coreScalar{}, num(1), num(1)},
		{coreScalar{kind: coreTrue}, num(1), num(2)},
		{coreScalar{kind: coreFalse}, num(1), num(1)},
		{num(0.1), num(0.2), num(0.3)},
		{num(1e15), num(1), num(1e15 + 1)},
		{num(1 << 53), num(1), coreScalar{kind: coreDigits, text: "9007199254740993"}},
		{num(1), num(-1), num(0)},
		{num(1e-300), num(1), num(1)},
	} {
		if got, err := coreNumberAdd(test.value, test.by); err != nil || got != test.want {
			t.Errorf("%+v + %+v: %+v, %v, want %+v", test.value, test.by, got, err, test.want)
		}
	}
	for _, by := range []coreScalar{num(1e300), num(-1e47)} {
		if got, err := coreNumberAdd(num(1), by); err == nil {
			t.Errorf("1 + %v: %+v", by.number, got)
		}
	}
}

// addByRule implements M's rule with big integers: truncate the operands to 18 digits, align them
// to the larger one, add, truncate.
func addByRule(a, b string) *big.Rat {
	x, _ := new(big.Rat).SetString(rational(a))
	y, _ := new(big.Rat).SetString(rational(b))
	if x.Sign() == 0 || y.Sign() == 0 {
		return x.Add(x, y)
	}
	cut := func(value *big.Rat, unit *big.Rat) *big.Rat {
		quotient := new(big.Rat).Quo(value, unit)
		whole := new(big.Int).Quo(quotient.Num(), quotient.Denom())
		return new(big.Rat).Mul(new(big.Rat).SetInt(whole), unit)
	}
	unitOf := func(value *big.Rat) *big.Rat { // the value of the 18th digit
		size := new(big.Rat).Abs(value)
		place := -100
		for size.Cmp(tenTo(place+1)) >= 0 {
			place++
		}
		return tenTo(place - 17)
	}
	unit := unitOf(x)
	if other := unitOf(y); other.Cmp(unit) > 0 {
		unit = other
	}
	sum := new(big.Rat).Add(cut(x, unit), cut(y, unit))
	if sum.Sign() != 0 && unitOf(sum).Cmp(unit) > 0 {
		sum = cut(sum, unitOf(sum))
	}
	return sum
}

func TestNumberAddRandomly(t *testing.T) {
	r := testseed.New(t)
	for range 5_000 {
		a, b := randomNumber(r), randomNumber(r)
		if r.IntN(3) == 0 { // of similar size, so that they may cancel out
			b = "-" + strings.TrimPrefix(a, "-")
			if r.IntN(2) == 0 {
				b = b[1:]
			}
			b = b[:len(b)-1] + string("123456789"[r.IntN(9)])
			if !isCanonical(b) {
				continue
			}
		}
		want := addByRule(a, b)
		size := new(big.Rat).Abs(want)
		got, err := coreNumberAdd(str(a), str(b))
		if size.Cmp(tenTo(47)) >= 0 {
			if err == nil {
				t.Fatalf("%s + %s: %+v, want an error", a, b, got)
			}
			continue
		}
		if size.Cmp(tenTo(-43)) < 0 {
			want.SetInt64(0)
		}
		text, textErr := coreNumberText(got)
		if err != nil || textErr != nil {
			t.Fatalf("%s + %s: %v, %v", a, b, err, textErr)
		}
		if value, ok := new(big.Rat).SetString(rational(text)); !ok || value.Cmp(want) != 0 || !isCanonical(text) {
			t.Fatalf("%s + %s = %s, want %s", a, b, text, want.RatString())
		}
	}
}

func FuzzNumberAdd(f *testing.F) {
	for _, sum := range sums {
		f.Add(sum[0], sum[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		sum, err := coreNumberAdd(str(a), str(b))
		other, otherErr := coreNumberAdd(str(b), str(a))
		if (err == nil) != (otherErr == nil) || sum != other {
			t.Fatalf("%q + %q: %+v, %v; the other way round %+v, %v", a, b, sum, err, other, otherErr)
		}
		if err != nil {
			return
		}
		text, err := coreNumberText(sum)
		if err != nil || !isCanonical(text) {
			t.Fatalf("%q + %q: %q, %v is not canonical", a, b, text, err)
		}
		if !isCanonical(a) || !isCanonical(b) {
			return
		}
		want := addByRule(a, b)
		if new(big.Rat).Abs(want).Cmp(tenTo(-43)) < 0 {
			want.SetInt64(0)
		}
		if got, _ := new(big.Rat).SetString(rational(text)); got.Cmp(want) != 0 {
			t.Fatalf("%s + %s = %s, want %s", a, b, text, want.RatString())
		}
	})
}

// TestDoublesAreKeptAlike stores the same double through C and through Go, and reads it before and
// after it is durable: both store the same value, and comparisons find it equal.
func TestDoublesAreKeptAlike(t *testing.T) {
	store, err := openCoreStore(t.TempDir(), coreOptions{noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	s, err := store.session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, x := range []float64{
		1 << 53, 1<<53 + 2, -(1<<53 + 2), 1 << 59, 1 << 60, 1 << 62, -(1 << 62), 1 << 63, 1 << 64, 1e18, 1e22, 1e23, 9.99e46, 1e47, 1e300,
		math.MaxFloat64, 1e-43, 1e-44, math.SmallestNonzeroFloat64, 0.1, math.Copysign(0, -1), 123456789012345678,
	} {
		v, err := nodedb.ValueOf(x)
		if err != nil {
			t.Fatal(err)
		}
		if back, ok := v.Float(); back != x || !ok {
			t.Errorf("%v is kept as %v, and read as %v", x, v, back)
		}
		for _, name := range []string{"^d", "d"} {
			key, given := mustKey(t, name), num(x)
			if got := s.do(coreCall{what: doSet, key: key, a: &given}); got != "" {
				t.Fatal(got)
			}
			for _, when := range []string{"at once", "durable"} {
				spelled := s.do(coreCall{what: doGet, key: key})
				kept := parsedScalar(spelled)
				if want := valueScalar(v); kept != want {
					t.Errorf("%v in %s %s is %s: got %+v, want %+v", x, name, when, spelled, kept, want)
				}
				if got := s.do(coreCall{what: doCAS, key: key, a: &given, b: &given}); got != "" {
					t.Errorf("%v in %s %s does not equal itself: %s", x, name, when, got)
				}
				if got := s.do(coreCall{what: doCAS, key: key, a: &given, b: &kept}); got != "" {
					t.Errorf("%v in %s %s does not equal what it is kept as: %s", x, name, when, got)
				}
				if err := store.sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// valueScalar converts a Value's kind and text to the core's form.
func valueScalar(v nodedb.Value) coreScalar {
	if v.Kind() == nodedb.String {
		return str(v.String())
	}
	text := v.String()
	if fraction, ok := strings.CutPrefix(text, "0."); ok {
		text = "." + fraction
	}
	return parsedScalar(text)
}
