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
