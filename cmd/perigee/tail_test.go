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
	for broken, want := range map[string]string{
		"":              "EOF",
		`{1:2}`:         "invalid character '1'",
		`{"a"`:          "EOF",
		`{"a":}`:        "invalid character '}' looking for beginning of value",
		`{"a":1 "b":2}`: "invalid character '\"' after object key:value pair",
	} {
		if names, cells, err := parseRow([]byte(broken)); err == nil || err.Error() != want {
			t.Errorf("%s is read as %q, %q, %v, want %s", broken, names, cells, err, want)
		}
	}
}
