package positions

import (
	"encoding/binary"
	"fmt"

	"github.com/perigeedb/perigee/event"
)

// AppendHex appends fingerprints as hexadecimal digits, each four bytes, little
// endian.
func AppendHex(b []byte, prints []uint32) []byte {
	const digits = "0123456789abcdef"
	for _, print := range prints {
		for range 4 {
			b = append(b, digits[print>>4&15], digits[print&15])
			print >>= 8
		}
	}
	return b
}

// DecodePrints returns the fingerprints of r that a database keeps as bytes.
func DecodePrints(r event.Range, kept []byte) ([]uint32, error) {
	if len(kept) == 0 {
		return nil, nil
	}
	if len(kept)%4 != 0 || uint64(len(kept)/4) != r.Count {
		return nil, &event.PermanentError{
			Err:  fmt.Errorf("perigee_ranges has %d bytes of fingerprints for the %d events of %v", len(kept), r.Count, r),
			Hint: "the table was changed by hand; restore the row or set its prints to NULL",
		}
	}
	prints := make([]uint32, r.Count)
	for i := range prints {
		prints[i] = binary.LittleEndian.Uint32(kept[4*i:])
	}
	return prints, nil
}
