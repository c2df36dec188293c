package terminal

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"é\n\t": "é\n\t", "\x1b[2J": `\x1b[2J`, "\xff\xfe": `\xff\xfe`, "\u009b": `\u009b`, "a\u202eb": `a\u202eb`, "\x7f\r": `\u007f\x0d`,
		"\u2066\u061c\u200f": `\u2066\u061c\u200f`, "\u2028": `\u2028`, "\x9b31m": `\x9b31m`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
	text, _ := json.Marshal("\x1b \x7f \u009b \u202e")
	var back string
	if err := json.Unmarshal([]byte(Escape(string(text))), &back); err != nil || back != "\x1b \x7f \u009b \u202e" {
		t.Errorf("JSON became %q: %v", back, err)
	}
}

// TestWriterKeepsCharacters writes a text in pieces of every size.
func TestWriterKeepsCharacters(t *testing.T) {
	const text = "aé漢🙂\u009b\x1bz\xf0\x9f"
	for size := 1; size < len(text); size++ {
		var out strings.Builder
		w := NewWriter(&out)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != `aé漢🙂\u009b\x1bz\xf0\x9f` {
			t.Errorf("in pieces of %d bytes: %q", size, got)
		}
	}
}
