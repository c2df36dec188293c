package main

import (
	"bytes"
	"testing"
)

func TestDisplay(t *testing.T) {
	var out bytes.Buffer
	s := newDisplay(&out)
	s.Write([]byte("before\n"))
	s.draw("10 events")
	s.Write([]byte("message\n"))
	s.draw("")
	s.Write([]byte("after\n"))
	const want = "before\n" +
		"\r\x1b[K10 events" +
		"\r\x1b[Kmessage\n10 events" +
		"\r\x1b[K" +
		"after\n"
	if out.String() != want {
		t.Errorf("got %q\nwant %q", out.String(), want)
	}
}

func TestNoTerminalShowsNoProgress(t *testing.T) {
	var out bytes.Buffer
	newDisplay(&out).show(nil)()
	if out.Len() > 0 {
		t.Errorf("wrote %q", out.String())
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", 100000: "100,000"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}
