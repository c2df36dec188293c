package main

import (
	"slices"
	"testing"
)

func TestParseRow(t *testing.T) {
	names, cells, err := parseRow([]byte(`{"a":"x\n","b":null,"c":1.50,"d":{"e":[true]}}`))
	if want := []string{"a", "b", "c", "d"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("names %q, %v, want %q", names, err, want)
	}
	if want := []string{"x…", "", "1.50", `{"e":[true]}`}; !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
	for _, broken := range []string{"", `{1:2}`, `{"a"`, `{"a":}`, `{"a":1 "b":2}`} {
		if names, cells, err := parseRow([]byte(broken)); err == nil {
			t.Errorf("%s is read as %q, %q", broken, names, cells)
		}
	}
}
