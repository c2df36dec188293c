package outbox

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDamagedEntries changes each byte of an entry, cuts it off at each, and reads it under
// another key: none of that is an entry. One without a checksum is from an older version.
func TestDamagedEntries(t *testing.T) {
	want := entryOf("p", "a", 40)
	value, err := encodeEntry(want)
	if err != nil {
		t.Fatal(err)
	}
	key := entryKey("p", "a", 40)
	same := 0 // the type of the checksum has bits that do not matter
	for i := range value {
		changed := bytes.Clone(value)
		changed[i] ^= 1
		e, err := decodeEntry(key, changed)
		if err == nil && !cmp.Equal(want, e) || err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("byte %d is changed: %v", i, err)
		}
		if err == nil {
			same++
		}
	}
	if same > 8 {
		t.Errorf("%d changed bytes are not seen", same)
	}
	older := 0
	for i := range value {
		e, err := decodeEntry(key, value[:i])
		if err == nil {
			older++
			if diff := cmp.Diff(want, e); diff != "" {
				t.Errorf("cut off at byte %d: %s", i, diff)
			}
		} else if !errors.Is(err, errDamaged) {
			t.Errorf("cut off at byte %d: %v", i, err)
		}
	}
	if older != 1 {
		t.Errorf("%d entries without a checksum were read", older)
	}
	if _, err := decodeEntry(entryKey("p", "a", 41), value); !errors.Is(err, errDamaged) {
		t.Errorf("under another key: %v", err)
	}
}
