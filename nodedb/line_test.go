//go:build cgo && lmdb

package nodedb

import (
	"strings"
	"testing"
)

// TestLongestLine checks that Load accepts the dump line of any node. Alternating bytes of these
// two kinds give the longest text.
func TestLongestLine(t *testing.T) {
	const pair = "\x7f\xff"
	name := Name("^" + strings.Repeat("x", NameMax))
	longest := name
	for n := 1; ; n++ {
		path := name.At(strings.Repeat(pair, n))
		if path.Err() != nil {
			break
		}
		longest = path
	}
	path, value := len(longest.String()), ValueMax/len(pair)*len("$C(127)_$ZCH(255)_")
	if line := path + len("=") + value; path < 8*PathMax || line > lineMax {
		t.Errorf("a line has up to %d bytes, %d of them a path, and %d can be loaded", line, path, lineMax)
	}
}
