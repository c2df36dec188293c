//go:build cgo && lmdb

package nodedb

import (
	"fmt"
	"testing"
)

// TestHashSpreads counts the slots that the keys of siblings fall into: in the table of what a
// transaction has read, and in the table of values that a session has found. Chance fills 790 and
// 640 of them.
func TestHashSpreads(t *testing.T) {
	for length := range 24 {
		name := fmt.Sprintf("^x%0*d", length, 0)
		points, sets := map[uint64]bool{}, map[uint64]bool{}
		for i := range 1000 {
			key, err := coreEncode(name, []coreScalar{num(float64(i))})
			if err != nil {
				t.Fatal(err)
			}
			h := coreHash(key)
			points[h>>1&2047] = true
			sets[h>>8&2046] = true
		}
		if len(points) < 700 || len(sets) < 550 {
			t.Errorf("names of %d bytes: 1,000 keys fall into %d of 2,048 slots of reads and %d of 1,024 sets of values", len(name), len(points), len(sets))
		}
	}
}
