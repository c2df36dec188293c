package redis

import "testing"

// TestParseField: the name of a field is parsed once, and known from then on.
func TestParseField(t *testing.T) {
	var e streamEntry
	for i, test := range []struct {
		text, wanted, rest string
		ok                 bool
	}{
		{"*2\r\n$4\r\ndata\r\n$1\r\n7", "", "$1\r\n7", true},
		{"*2\r\n$4\r\ndata\r\n$1\r\n8", "", "$1\r\n8", true},
		{"*2\r\n$5\r\nother\r\n$1\r\n9", "", "$1\r\n9", true},
		{"*4\r\n$4\r\ndata\r\n$1\r\n7", "", "", false},
		{"*2\r\n$4\r\ndata\r\n$1\r\n7", "other", "", false},
		{"*2\r\n$9\r\ndata", "", "", false},
	} {
		if rest, ok := e.parseField([]byte(test.text), test.wanted); ok != test.ok || string(rest) != test.rest {
			t.Errorf("field %d: %q, %v", i, rest, ok)
		}
	}
}
