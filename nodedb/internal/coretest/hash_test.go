//go:build cgo && lmdb

package coretest

import (
	"fmt"
	"testing"
)

// TestHashSpreads counts the slots used by the keys of siblings, in the table of a transaction's
// reads and in a session's cache. A random hash fills 790 and 640 of them. About one name in a
// thousand is unlucky with the seed of the process, so the best of three names of a length counts.
func TestHashSpreads(t *testing.T) {
	for length := range 24 {
		points, sets := 0, 0
		for _, letter := range "xyz" {
			p, s := usedSlots(t, fmt.Sprintf("^%c%0*d", letter, length, 0))
			points, sets = max(points, p), max(sets, s)
		}
		if points < 700 || sets < 550 {
			t.Errorf("names of %d bytes: 1,000 keys fall into %d of 2,048 slots of reads and %d of 1,024 sets of values", length+2, points, sets)
		}
	}
}

func usedSlots(t *testing.T, name string) (ofPoints, ofSets int) {
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
	return len(points), len(sets)
}
