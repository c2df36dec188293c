package config

import "testing"

// TestSuggestName: hints list the known names, unless they are too many.
func TestSuggestName(t *testing.T) {
	known := []string{"l", "k", "j", "i", "h", "g", "f", "e", "d", "c", "b", "amount"}
	const all = "known: amount, b, c, d, e, f, g, h, i, j, k, l"
	for i, test := range []struct {
		name, want string
		known      []string
	}{
		{"zzzzz", all, known},
		{"amont", `did you mean "amount"? ` + all, known},
		{"zzzzz", "", append(known, "m")},
		{"amont", `did you mean "amount"?`, append(known, "m")},
		{"zzzzz", "", nil},
	} {
		if got := suggestName(test.name, test.known); got != test.want {
			t.Errorf("case %d: %q, want %q", i, got, test.want)
		}
	}
}
