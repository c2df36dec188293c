package sqltext

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "64MiB": 64 << 20, "2 GiB": 2 << 30, "1KiB": 1024, "4611686018427387904": 1 << 62, "4294967296GiB": 1 << 62, "1 KiB": 1024} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "MiB", "1MB", "1.5GiB", "9223372036854775807GiB", "4611686018427387905", "4294967297GiB", "1KiBGiB", "KiB"} {
		if got, err := ParseSize(text); got != 0 || err == nil {
			t.Errorf("%s: %d", text, got)
		}
	}
}

// TestNames: a name goes on through letters, digits, underscores and whatever is not ASCII.
func TestNames(t *testing.T) {
	const all = "_azAZ09é☾"
	if got := Params("$" + all); !maps.Equal(got, map[string]bool{strings.ToLower(all): true}) {
		t.Errorf("%v", got)
	}
	for c := byte(0); c < 0x80; c++ {
		letter := c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		want := map[string]bool{"x": true}
		if letter {
			want = map[string]bool{strings.ToLower("x" + string(c)): true}
		}
		if c == '$' {
			want = map[string]bool{} // $x$ begins a quotation
		}
		if got := Params("$x" + string(c)); !maps.Equal(got, want) {
			t.Errorf("%q: %v", c, got)
		}
	}
}

func TestParams(t *testing.T) {
	got := Params(`SELECT $a, '$b', $1, $$ $c $$, -- $d
	x$e, $From`)
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"1", "a", "from"}) {
		t.Error(names)
	}
}
