package positions

import (
	"encoding/binary"
	"fmt"

	"github.com/perigeedb/perigee/event"
)

// AppendHex appends fingerprints as hexadecimal digits, each four bytes, little
// endian.
func AppendHex(b []byte, fingerprints []uint32) []byte {
	const digits = "0123456789abcdef"
	for _, fingerprint := range fingerprints {
		for range 4 {
			b = append(b, digits[fingerprint>>4&15], digits[fingerprint&15])
			fingerprint >>= 8
		}
	}
	return b
}

// DecodeFingerprints returns the fingerprints of r that a database keeps as bytes.
func DecodeFingerprints(r event.Range, kept []byte) ([]uint32, error) {
	if len(kept) == 0 {
		return nil, nil
	}
	if len(kept)%4 != 0 || uint64(len(kept)/4) != r.Count {
		return nil, &event.PermanentError{
			Err:  fmt.Errorf("perigee_ranges has %d bytes of fingerprints for the %d events of %v", len(kept), r.Count, r),
			Hint: "the table was changed by hand; restore the row or set its prints to NULL",
		}
	}
	fingerprints := make([]uint32, r.Count)
	for i := range fingerprints {
		fingerprints[i] = binary.LittleEndian.Uint32(kept[4*i:])
	}
	return fingerprints, nil
}
