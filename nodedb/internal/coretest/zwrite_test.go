//go:build cgo && lmdb

package coretest

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func digits(text string) coreScalar { return coreScalar{kind: coreDigits, text: text} }

func TestZwriteScalar(t *testing.T) {
	for _, test := range []struct {
		value coreScalar
		text  string
	}{
		{num(5), `5`}, {num(-0.5), `-.5`}, {num(1e20), `100000000000000000000`}, {digits("12345678901234567.8"), `12345678901234567.8`},
		{str(""), `""`}, {str("5"), `"5"`}, {str("05"), `"05"`}, {str(`say "hi"`), `"say ""hi"""`}, {str(`"`), `""""`},
		{str("a\x00b"), `"a"_$C(0)_"b"`}, {str("\x00\x01\x02x\"y"), `$C(0,1,2)_"x""y"`}, {str("a\n"), `"a"_$C(10)`},
		{str("\x7f"), `$C(127)`}, {str("\xff"), `$ZCH(255)`}, {str("\xff\xfe\x00"), `$ZCH(255,254)_$C(0)`}, {str("Привет, €𝄞"), `"Привет, €𝄞"`},
		{str("\xc2\x83"), `$ZCH(194,131)`}, {str("\xed\xa0\x80"), `$ZCH(237,160,128)`}, {str("\xe2\x82"), `$ZCH(226,130)`},
		{str("\xc0\x80"), `$ZCH(192,128)`}, {str("\xf4\x90\x80\x80"), `$ZCH(244,144,128,128)`}, {str("é\xc3"), `"é"_$ZCH(195)`},
		{coreScalar{kind: coreTrue}, `true`}, {coreScalar{kind: coreFalse}, `false`}, {num(1e300), `"1` + repeat("0", 300) + `"`},
	} {
		text, needed, err := coreZwriteScalar(test.value, 1000)
		if err != nil || text != test.text || needed != len(text) {
			t.Errorf("%+v: %s (%d), %v, want %s", test.value, text, needed, err, test.text)
		}
		for _, room := range []int{0, 1, len(test.text) / 2, len(test.text) - 1} {
			if part, needed, err := coreZwriteScalar(test.value, room); err != nil || needed != len(test.text) || part != test.text[:room] {
				t.Errorf("%+v into %d bytes: %s (%d), %v", test.value, room, part, needed, err)
			}
		}
		back, at, err := coreParseScalar(text)
		want := test.value
		if want == num(1e300) {
			want = str(strings.Trim(text, `"`))
		} else if want == num(1e20) {
			want = digits(text)
		}
		if err != nil || back != want || at != len(text) {
			t.Errorf("%s parses as %+v at %d, %v", text, back, at, err)
		}
	}
	if text, _, err := coreZwriteScalar(coreScalar{}, 10); err == nil {
		t.Errorf("no value is printed as %s", text)
	}
}

func TestZwriteKey(t *testing.T) {
	for text, subscripts := range map[string][]coreScalar{
		`^x`:               nil,
		`^x(1,"a",.5)`:     {num(1), str("a"), num(0.5)},
		`^x("")`:           {str("")},
		`^x(5)`:            {str("5")},
		`^x("05","5.0")`:   {str("05"), str("5.0")},
		`^x($C(0),-1)`:     {str("\x00"), num(-1)},
		`^x("a"_$C(10),1)`: {str("a\n"), num(1)},
	} {
		key, err := coreEncode("^x", subscripts)
		if err != nil {
			t.Fatal(err)
		}
		got, needed, err := coreZwriteKey(key, 1000)
		if err != nil || got != text || needed != len(text) {
			t.Errorf("%v: %s (%d), %v, want %s", subscripts, got, needed, err, text)
		}
		if part, needed, err := coreZwriteKey(key, 2); err != nil || part != text[:2] || needed != len(text) {
			t.Errorf("%v into 2 bytes: %s (%d), %v", subscripts, part, needed, err)
		}
		back, at, err := coreParseKey(text)
		if err != nil || !bytes.Equal(back, key) || at != len(text) {
			t.Errorf("%s parses as % x at %d, %v", text, back, at, err)
		}
	}
	if text, _, err := coreZwriteKey([]byte("^x\x00\x01"), 100); err == nil {
		t.Errorf("a corrupt key is printed as %s", text)
	}
}

// Spellings that M prints and this core does not.
func TestZwriteParseOfM(t *testing.T) {
	for text, want := range map[string]coreScalar{
		`$C(255)`: str("\xff"), `$CHAR(97,98)_"c"`: str("abc"), `$zchar(1)`: str("\x01"), `$zch(200)_$c(1)`: str("\xc8\x01"),
		`$C(8364)`: str("€"), `$C(119070)`: str("𝄞"), `$C(300)`: str("Ĭ"), `""_""`: str(""), "\"a\nb\"": str("a\nb"),
	} {
		if got, at, err := coreParseScalar(text); err != nil || got != want || at != len(text) {
			t.Errorf("%s: %+v at %d, %v, want %+v", text, got, at, err, want)
		}
	}
}

func TestZwriteParseErrors(t *testing.T) {
	for _, test := range []struct {
		text string
		at   int
	}{
		{``, 0}, {`"a`, 2}, {`"a"_`, 4}, {`"a"_b`, 4}, {`$D(1)`, 0}, {`$C(`, 3}, {`$C()`, 3}, {`$C(1`, 4}, {`$C(1,`, 5}, {`$C(1114112)`, 3},
		{`$C(99999999999999999999999)`, 3}, {`$C(55296)`, 3}, {`$ZCH(256)`, 5}, {`$ZCH(1,-1)`, 7}, {`0.5`, 0}, {`1.0`, 0}, {`-`, 0}, {`1-1`, 0},
		{`1234567890123456789`, 0}, {`abc`, 0}, {`nil`, 0},
	} {
		if got, at, err := coreParseScalar(test.text); err == nil || at != test.at {
			t.Errorf("%s: %+v at %d, %v, want an error at %d", test.text, got, at, err, test.at)
		}
	}
	for _, test := range []struct {
		text string
		at   int
	}{
		{``, 0}, {`^`, 0}, {`1`, 0}, {`^x(`, 3}, {`^x()`, 3}, {`^x(1`, 4}, {`^x(1,`, 5}, {`^x(1 )`, 4}, {`^x(a)`, 3}, {`^x(true)`, 3}, {`^x^y`, 0},
		{`^x(1,01)`, 5}, {`^x("` + repeat("a", 1898) + `")`, 3}, {`^x(` + repeat("1,", 31) + `1)`, 65}, {`^` + repeat("a", 40), 0},
	} {
		if got, at, err := coreParseKey(test.text); err == nil || at != test.at {
			t.Errorf("%s: % x at %d, %v, want an error at %d", test.text, got, at, err, test.at)
		}
	}
}

func FuzzZwriteString(f *testing.F) {
	for _, text := range []string{"", "abc", "\x00\x01\xff", `"`, "é\xc3", "\xf0\x9d\x84\x9e", "5", "$C(0)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, value string) {
		text, needed, err := coreZwriteScalar(str(value), 12*len(value)+2)
		if err != nil || needed != len(text) || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\r\x00") {
			t.Fatalf("%q is printed as %q (%d), %v", value, text, needed, err)
		}
		if back, at, err := coreParseScalar(text); err != nil || back != str(value) || at != len(text) {
			t.Fatalf("%q came back as %+v at %d, %v", value, back, at, err)
		}
	})
}

func FuzzZwriteParse(f *testing.F) {
	for _, text := range []string{`^x(1,"a",.5)="v"`, `x="a"_$C(0)`, `^x($ZCH(255),$C(8364))=true`, `^%=-1.5`, `^x("")=`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, at, err := coreParseKey(text)
		if at > len(text) {
			t.Fatalf("%q: at %d", text, at)
		}
		if err != nil {
			return
		}
		printed, _, err := coreZwriteKey(key, 20000)
		if err != nil {
			t.Fatalf("%q: the key % x is not printed: %v", text, key, err)
		}
		if again, _, err := coreParseKey(printed); err != nil || !bytes.Equal(again, key) {
			t.Fatalf("%q, printed as %q, parses as % x, %v", text, printed, again, err)
		}
		if at == len(text) || text[at] != '=' {
			return
		}
		text = text[at+1:]
		value, at, err := coreParseScalar(text)
		if at > len(text) {
			t.Fatalf("%q: at %d", text, at)
		}
		if err != nil {
			return
		}
		printed, _, err = coreZwriteScalar(value, 12*len(text)+100)
		if err != nil {
			t.Fatal(err)
		}
		if again, _, err := coreParseScalar(printed); err != nil || again != value {
			t.Fatalf("%q, printed as %q, parses as %+v, %v", text, printed, again, err)
		}
	})
}
