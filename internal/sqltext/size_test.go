package sqltext

import (
	"maps"
	"slices"
	"testing"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "64MiB": 64 << 20, "2 GiB": 2 << 30, "1KiB": 1024} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "MiB", "1MB", "1.5GiB", "9223372036854775807GiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%s: %d", text, got)
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
