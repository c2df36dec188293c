package main

import "testing"

func TestFirstLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "abc": "abc", "abc\ndef": "abc…", "abcdefgh": "abcde…", "\xff": `\xff`, "a\tb\x1b": `a b\x…`,
	} {
		if got := firstLine(in, 6); got != want {
			t.Errorf("firstLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"é\n\t": "é\n\t", "\x1b[2J": `\x1b[2J`, "\xff\xfe": `\xff\xfe`, "\u009b": `\u009b`, "a\u202eb": `a\u202eb`, "\x7f\r": `\x7f\x0d`,
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}
