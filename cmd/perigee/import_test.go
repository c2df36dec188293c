package main

import "testing"

func TestIsPlainJSON(t *testing.T) {
	for field, want := range map[string]bool{
		"true": true, "false": true, "0": true, "9": true, "-1": true, "12.50": true, "1e9": true, "-0.5": true,
		"null": false, "True": false, "yes": false, "-": false, "01": false, "1 ": false, "+1": false, ".5": false, "1x": false,
		"{}": false, "[1]": false, `"1"`: false, "/": false, ":": false, " 1": false, "NaN": false,
	} {
		if got := isPlainJSON(field); got != want {
			t.Errorf("%q: %v", field, got)
		}
	}
}
