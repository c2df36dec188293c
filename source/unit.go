package source

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// unitNameMax is the length of the longest name of a unit.
const unitNameMax = 1000

// UnitName returns the name of a unit for Traits.Unit. That is name itself if it is UTF-8 without
// NUL and not longer than 1,000 bytes, otherwise what can be read of its front, and a hash. Different
// names stay different.
func UnitName(name string) string {
	if len(name) <= unitNameMax && utf8.ValidString(name) && !strings.ContainsRune(name, 0) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "~" + hex.EncodeToString(sum[:16])
	front := strings.ReplaceAll(strings.ToValidUTF8(name, "_"), "\x00", "_")
	if maxFront := unitNameMax - len(hash); len(front) > maxFront {
		front = strings.ToValidUTF8(front[:maxFront], "")
	}
	return front + hash
}

// UnitBefore returns a Traits.Unit for partitions whose names are the name of a unit, a separator,
// and a generation: it returns the part before the last separator.
func UnitBefore(separator string) func(partition string) string {
	return func(partition string) string {
		if at := strings.LastIndex(partition, separator); at > 0 {
			partition = partition[:at]
		}
		return UnitName(partition)
	}
}
