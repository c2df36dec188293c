//go:build cgo && lmdb

package coretest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testseed"
)

func str(text string) coreScalar    { return coreScalar{kind: coreString, text: text} }
func num(number float64) coreScalar { return coreScalar{kind: coreNumber, number: number} }

// numberPattern describes M's canonical numbers, independently of the code.
var numberPattern = regexp.MustCompile(`^(0|-?([1-9][0-9]*)?(\.[0-9]*[1-9])?)$`)

func isCanonical(text string) bool {
	if !numberPattern.MatchString(text) || text == "" || text == "-" {
		return false
	}
	digits := strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(text), "0")
	if len(strings.TrimRight(digits, "0")) > 18 {
		return false
	}
	if text == "0" {
		return true
	}
	size, _ := new(big.Rat).SetString(rational(text))
	size.Abs(size)
	return size.Cmp(tenTo(-43)) >= 0 && size.Cmp(tenTo(47)) < 0
}

// rational converts a number of M to a form that package big reads.
func rational(text string) string {
	text = strings.Replace(text, "-.", "-0.", 1)
	if strings.HasPrefix(text, ".") {
		return "0" + text
	}
	return text
}

func tenTo(exponent int) *big.Rat {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
	if exponent < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), power)
	}
	return new(big.Rat).SetInt(power)
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// Texts that a live M does or does not treat as numbers.
var (
	numbersOfM = []string{
		"0", "1", "-1", ".5", "-.5", ".01", "1000000000000000", "9007199254740992", "123456789012345678",
		"1234567890123456780", "123456789012345678000", "1" + repeat("0", 46), "-1" + repeat("0", 46), "99" + repeat("0", 45),
		repeat("9", 18) + repeat("0", 29), ".123456789012345678", "12345678901234567.8", "." + repeat("0", 42) + "1",
		"." + repeat("0", 42) + "123456789012345678", "-." + repeat("0", 42) + "1", "100000000000000000000",
	}
	stringsOfM = []string{
		"-0", "00", "-00", "01", "0.5", "-0.5", "1.0", "1.", "+1", ".10", ".0", ".", "-.", "-", "- 1", "1-", "1..1",
		"1e15", "1E3", "1E20", "1234567890123456789", "12345678901234567890", "1" + repeat("0", 47), "-1" + repeat("0", 47),
		".1234567890123456789", "123456789012345678.9", "." + repeat("0", 43) + "1", " 1", "1 ", "0x10", "nan", "inf",
	}
)

func TestCanonicalNumbers(t *testing.T) {
	for _, text := range numbersOfM {
		if !isCanonical(text) {
			t.Errorf("the test's own rule says that %s is a string", text)
		}
		_, subscripts, err := encodeAndDecode(str(text))
		if err != nil || subscripts[0].kind == coreString {
			t.Errorf("%s: got %+v, %v; want a number", text, subscripts, err)
			continue
		}
		if got, _ := coreNumberText(subscripts[0]); got != text {
			t.Errorf("%s came back as %s", text, got)
		}
	}
	for _, text := range stringsOfM {
		if isCanonical(text) {
			t.Errorf("the test's own rule says that %s is a number", text)
		}
		_, subscripts, err := encodeAndDecode(str(text))
		if err != nil || subscripts[0] != str(text) {
			t.Errorf("%q: got %+v, %v; want the string", text, subscripts, err)
		}
	}
}

func encodeAndDecode(subscripts ...coreScalar) (key []byte, decoded []coreScalar, err error) {
	key, err = coreEncode("^x", subscripts)
	if err != nil {
		return nil, nil, err
	}
	_, decoded, err = coreDecode(key)
	return key, decoded, err
}

// Subscripts that are the same node, and the result of reading them.
func TestSubscriptsOfOneNode(t *testing.T) {
	for _, test := range []struct {
		same []coreScalar
		back coreScalar
	}{
		{[]coreScalar{num(3), num(3.0), str("3"), digits("3")}, num(3)},
		{[]coreScalar{num(0), num(math.Copysign(0, -1)), str("0")}, num(0)},
		{[]coreScalar{num(0.1), str(".1")}, num(0.1)},
		{[]coreScalar{num(-0.5), str("-.5")}, num(-0.5)},
		{[]coreScalar{num(1e15), str("1000000000000000")}, num(1e15)},
		{[]coreScalar{num(1 << 53), str("9007199254740992")}, num(1 << 53)},
		{[]coreScalar{num(-(1 << 53)), str("-9007199254740992")}, num(-(1 << 53))},
		{[]coreScalar{num(1 << 54), str("18014398509481984")}, digits("18014398509481984")},
		{[]coreScalar{num(18014398509481988)}, digits("18014398509481988")}, // its shortest spelling ends in 90
		{[]coreScalar{num(1e20), str("100000000000000000000")}, digits("100000000000000000000")},
		{[]coreScalar{num(0.30000000000000004)}, num(0.30000000000000004)},
		{[]coreScalar{str(".300000000000000041"), digits(".300000000000000041")}, digits(".300000000000000041")},
		{[]coreScalar{str("0.5")}, str("0.5")},
		{[]coreScalar{num(1e47), str("1" + repeat("0", 47))}, str("1" + repeat("0", 47))},
		{[]coreScalar{num(1e-44), str("." + repeat("0", 43) + "1")}, str("." + repeat("0", 43) + "1")},
		{[]coreScalar{str("")}, str("")},
		{[]coreScalar{str("\x00\x01\x02")}, str("\x00\x01\x02")},
	} {
		first, back, err := encodeAndDecode(test.same[0])
		if err != nil || back[0] != test.back {
			t.Errorf("%+v: came back as %+v, %v; want %+v", test.same[0], back, err, test.back)
		}
		for _, other := range test.same[1:] {
			if key, _, err := encodeAndDecode(other); err != nil || !bytes.Equal(key, first) {
				t.Errorf("%+v and %+v are two nodes: % x, % x, %v", test.same[0], other, first, key, err)
			}
		}
	}
}

func TestKeysRefused(t *testing.T) {
	deep := slices.Repeat([]coreScalar{num(0)}, 31)
	if _, err := coreEncode("^x", deep); err != nil {
		t.Errorf("31 subscripts: %v", err)
	}
	deepText := slices.Repeat([]coreScalar{str("ab\x00c")}, 31)
	if _, err := coreEncode("^x", deepText); err != nil {
		t.Errorf("31 strings: %v", err)
	}
	longest := str(repeat("a", 1900-3-2)) // ^x 00 C0 … 00
	if _, err := coreEncode("^x", []coreScalar{longest}); err != nil {
		t.Errorf("the longest key: %v", err)
	}
	for _, test := range []struct {
		name       string
		subscripts []coreScalar
		code       string
	}{
		{"^x", append(slices.Clone(deep), num(0)), "NDB_E_ARGUMENT"},
		{"^x", append(slices.Clone(deep), str("")), "NDB_E_ARGUMENT"},
		{"^x", append(slices.Clone(deepText), str("z")), "NDB_E_ARGUMENT"},
		{"^x", []coreScalar{str(longest.text + "a")}, "NDB_E_KEY"},
		{"^x", []coreScalar{str(repeat("\x00", 948)), str("a")}, "NDB_E_KEY"},
		{"^x", []coreScalar{str(repeat("a", 1895)), num(1)}, "NDB_E_KEY"},
		{"^x", []coreScalar{str(repeat("a", 1892)), num(0.5)}, "NDB_E_KEY"},
		{"^x", []coreScalar{str(repeat("a", 5000))}, "NDB_E_KEY"},
		{"^x", []coreScalar{num(math.NaN())}, "NDB_E_ARGUMENT"},
		{"^x", []coreScalar{num(math.Inf(-1))}, "NDB_E_ARGUMENT"},
		{"^x", []coreScalar{{kind: coreTrue}}, "NDB_E_ARGUMENT"},
		{"^x", []coreScalar{{kind: coreAbsent}}, "NDB_E_ARGUMENT"},
		{"", nil, "NDB_E_ARGUMENT"},
		{"^", nil, "NDB_E_ARGUMENT"},
		{"1x", nil, "NDB_E_ARGUMENT"},
		{"^a_b", nil, "NDB_E_ARGUMENT"},
		{"^a\x00b", nil, "NDB_E_ARGUMENT"},
		{"^" + repeat("a", 32), nil, "NDB_E_ARGUMENT"},
	} {
		_, err := coreEncode(test.name, test.subscripts)
		if err == nil || !strings.HasPrefix(err.Error(), test.code+": ") {
			t.Errorf("%q with %d subscripts: %v, want %s", test.name, len(test.subscripts), err, test.code)
		}
	}
	for _, name := range []string{"a", "^a", "%a1", "^%", "^" + repeat("a", 31)} {
		if _, err := coreEncode(name, nil); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Encodings that a writer never produces: each would be a second key of a node, or the key of none.
func TestDecodeRejects(t *testing.T) {
	for _, key := range []string{
		"^x\x00\xc0" + repeat("a", 1896) + "\x00", // a byte longer than the longest key
		"", "^x", "x y\x00", "^x\x00\xff", "^x\x00\x00", "^x\x00\x01", "^x\x00\x81", "^x\x00\x81\x00", "^x\x00\x82\x00\x05",
		"^x\x00\x7f\xff", "^x\x00\xc0", "^x\x00\xc0\x00", "^x\x00\xc0a", "^x\x00\xc0\x01\x00", "^x\x00\xc0\x01\x03\x00",
		"^x\x00\xc05\x00", "^x\x00\xc0-.5\x00", "^x\x00\x80\xff", "^x\x00\x80\xff\x00", "^x\x00\x80\xff\x01\x00", "^x\x00\x80\xff\x66\x00",
		"^x\x00\x80\xff\x33\x01\x00", "^x\x00\x81\x05\xff\x33", "^x\x00\x94" + repeat("\xff", 20), "^x\x00\x95" + repeat("\x01", 21),
		"^x\x00\x88\x11\x22\x10\xf4\x7d\xe9\x81\x15",       // 1234567890123456789
		"^x\x00\x80\xff" + repeat("\x01", 21) + "\x02\x00", // 1E-44
		"^x\x00\x80\xff" + repeat("\x02", 10) + "\x00",     // 19 digits
	} {
		if name, subscripts, err := coreDecode([]byte(key)); err == nil {
			t.Fatalf("% x: decoded as %s%v", key, name, subscripts)
		}
	}
}

// A testSubscript is one subscript in a form that is easy to compare.
type testSubscript struct {
	text  string
	value *big.Rat // nil for a string
}

func newTestSubscript(text string) testSubscript {
	s := testSubscript{text: text}
	if isCanonical(text) {
		s.value, _ = new(big.Rat).SetString(rational(text))
	}
	return s
}

func (s testSubscript) String() string { return strconv.Quote(s.text) }

// compare implements M's order: "", numbers by value, strings by bytes.
func (s testSubscript) compare(other testSubscript) int {
	rank := func(s testSubscript) int {
		switch {
		case s.text == "":
			return 0
		case s.value != nil:
			return 1
		}
		return 2
	}
	switch a, b := rank(s), rank(other); {
	case a != b:
		return a - b
	case a == 1:
		return s.value.Cmp(other.value)
	}
	return strings.Compare(s.text, other.text)
}

// randomNumber returns a canonical number, often close to others.
func randomNumber(r *rand.Rand) string {
	for {
		var text string
		switch r.IntN(6) {
		case 0:
			text = strconv.Itoa(r.IntN(600) - 300)
		case 1:
			text = strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10)
		case 2: // close to a power of 256, where the length of the encoding changes
			edge := new(big.Int).Lsh(big.NewInt(1), uint(8*r.IntN(20)))
			text = edge.Add(edge, big.NewInt(int64(r.IntN(3)-1))).String()
		default:
			digits := strconv.FormatUint(r.Uint64()%uint64(math.Pow10(1+r.IntN(18))), 10)
			switch point := r.IntN(len(digits) + 1); r.IntN(3) {
			case 0:
				text = strings.TrimLeft(digits[:point], "0") + "." + strings.TrimRight(digits[point:]+strconv.Itoa(r.IntN(2)*5), "0")
			case 1:
				text = "." + repeat("0", r.IntN(43)) + strings.TrimRight(digits, "0")
			case 2:
				text = digits + repeat("0", r.IntN(30))
			}
		}
		if r.IntN(3) == 0 {
			text = "-" + strings.TrimPrefix(text, "-")
		}
		if isCanonical(text) {
			return text
		}
	}
}

func randomString(r *rand.Rand) string {
	const alphabet = "\x00\x01\x02\x00a5b-.\xc0\xfe\xff"
	out := make([]byte, r.IntN(12))
	for i := range out {
		out[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(out)
}

func TestKeyOrder(t *testing.T) {
	r := testseed.New(t)
	pool := []testSubscript{newTestSubscript("")}
	for _, text := range slices.Concat(numbersOfM, stringsOfM, []string{"5", "5.5", "4.999", "5.01", "-5", "-5.5", "-4.5", "a", "a\x00", "a\x01", "a\x02"}) {
		pool = append(pool, newTestSubscript(text))
	}
	for range 4000 {
		pool = append(pool, newTestSubscript(randomNumber(r)), newTestSubscript(randomString(r)))
	}
	type path struct {
		subscripts []testSubscript
		key        []byte
	}
	randomPath := func(start []testSubscript) path {
		p := path{subscripts: slices.Clone(start)}
		for range r.IntN(4) {
			p.subscripts = append(p.subscripts, pool[r.IntN(len(pool))])
		}
		scalars := make([]coreScalar, len(p.subscripts))
		for i, s := range p.subscripts {
			scalars[i] = str(s.text)
		}
		key, err := coreEncode("^x", scalars)
		if err != nil {
			t.Fatal(err)
		}
		p.key = key
		return p
	}
	const pairs = 1_000_000
	wrong := 0
	for range pairs / 10 {
		// Ten pairs of a small family, most with a common prefix.
		family := []path{randomPath(nil)}
		for len(family) < 5 {
			from := family[r.IntN(len(family))].subscripts
			family = append(family, randomPath(from[:r.IntN(len(from)+1)]))
		}
		for i, a := range family {
			for _, b := range family[:i] {
				want := slices.CompareFunc(a.subscripts, b.subscripts, testSubscript.compare)
				if sign(bytes.Compare(a.key, b.key)) != sign(want) {
					t.Errorf("%v against %v: the keys compare %d, want %d", a.subscripts, b.subscripts, bytes.Compare(a.key, b.key), want)
				}
				// Descendants lie between the key and the key with FF behind it.
				inside := len(b.subscripts) > len(a.subscripts) && slices.EqualFunc(a.subscripts, b.subscripts[:len(a.subscripts)],
					func(x, y testSubscript) bool { return x.text == y.text })
				between := bytes.Compare(b.key, a.key) > 0 && bytes.Compare(b.key, append(slices.Clone(a.key), 0xFF)) < 0
				if inside != between {
					t.Errorf("%v below %v: %v by keys, %v by paths", b.subscripts, a.subscripts, between, inside)
				}
				if t.Failed() {
					wrong++
				}
				if wrong > 5 {
					t.FailNow()
				}
			}
		}
		for _, p := range family[:1] {
			_, decoded, err := coreDecode(p.key)
			if err != nil || len(decoded) != len(p.subscripts) {
				t.Fatalf("%v: %v", p.subscripts, err)
			}
			if coreKeyDepth(p.key) != len(decoded) {
				t.Fatalf("%v: depth %d", p.subscripts, coreKeyDepth(p.key))
			}
			if n := len(decoded); n > 0 {
				scalars := make([]coreScalar, n-1)
				for i := range scalars {
					scalars[i] = str(p.subscripts[i].text)
				}
				if parent, _ := coreEncode("^x", scalars); coreKeyParent(p.key) != len(parent) {
					t.Fatalf("%v: parent has %d bytes, want %d", p.subscripts, coreKeyParent(p.key), len(parent))
				}
			}
		}
	}
	t.Logf("%d pairs of paths compared", pairs)
}

func sign(n int) int { return min(max(n, -1), 1) }

// Doubles keep their value: as a number, or as digits or a string that reads as the same double.
func TestDoublesComeBack(t *testing.T) {
	r := testseed.New(t)
	for range 200_000 {
		var number float64
		switch r.IntN(4) {
		case 0:
			number = math.Float64frombits(r.Uint64())
		case 1:
			number = float64(r.IntN(1_000_000)) / math.Pow10(r.IntN(8))
		case 2:
			number = r.NormFloat64() * math.Pow10(r.IntN(60)-30)
		case 3:
			number = float64(int64(r.Uint64()) >> r.IntN(64))
		}
		if math.IsNaN(number) || math.IsInf(number, 0) {
			continue
		}
		_, back, err := encodeAndDecode(num(number))
		if err != nil {
			t.Fatal(err)
		}
		if back[0].kind == coreNumber {
			if back[0].number != number {
				t.Fatalf("%v came back as %v", number, back[0].number)
			}
			continue
		}
		if got, err := strconv.ParseFloat(back[0].text, 64); err != nil || got != number {
			t.Fatalf("%v came back as %s", number, back[0].text)
		}
		if small := math.Abs(number); small < 1<<53 && small > 1e-43 && back[0].kind != coreNumber {
			t.Fatalf("%v came back as digits: %s", number, back[0].text)
		}
	}
}

func FuzzKeyDecode(f *testing.F) {
	for _, text := range slices.Concat(numbersOfM, stringsOfM) {
		key, err := coreEncode("^x", []coreScalar{str(text), num(0.5)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		name, subscripts, err := coreDecode(key)
		depth := coreKeyDepth(key)
		if err != nil {
			var failure *coreError
			if !errors.As(err, &failure) || failure.message == "" {
				t.Fatalf("%x: an error without a message", key)
			}
			return
		}
		if depth != len(subscripts) {
			t.Fatalf("%x: depth %d, decoded %d", key, depth, len(subscripts))
		}
		if len(subscripts) > 31 || len(key) > 1900 {
			return
		}
		again, err := coreEncode(name, subscripts)
		if err != nil || !bytes.Equal(again, key) {
			t.Fatalf("%x decodes as %s%v, which encodes as %x, %v", key, name, subscripts, again, err)
		}
	})
}

func FuzzKeyAppend(f *testing.F) {
	for _, text := range slices.Concat(numbersOfM, stringsOfM, []string{"", "\x00\x01", "abcdefgh\x00ijklmnop\x01"}) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, subscripts, err := encodeAndDecode(str(text))
		if err != nil {
			if len(text) < 900 {
				t.Fatal(err)
			}
			return
		}
		back := subscripts[0].text
		if subscripts[0].kind != coreString {
			back, _ = coreNumberText(subscripts[0])
		}
		if back != text || (subscripts[0].kind == coreString) == isCanonical(text) {
			t.Fatalf("%q came back as %+v, key % x", text, subscripts[0], key)
		}
	})
}

func BenchmarkKeyAppend(b *testing.B) {
	for _, subscript := range []coreScalar{num(7), num(123456), str("rec00000001"), str("abc"), num(0.5), str("12345")} {
		b.Run(fmt.Sprintf("%v%s", subscript.number, subscript.text), func(b *testing.B) { coreTimeAppends(subscript, b.N) })
	}
}
