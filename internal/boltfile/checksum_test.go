package boltfile

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"testing"
)

func pathOf(names ...string) (path [][]byte) {
	for _, name := range names {
		path = append(path, []byte(name))
	}
	return path
}

// TestChecksum changes each bit of a value, and reads it at other paths: that is damage.
func TestChecksum(t *testing.T) {
	content := []byte(`{"a":1}`)
	value := AppendChecksum(bytes.Clone(content), pathOf("p", "ab", "key")...)
	if got, err := VerifyChecksum(value, pathOf("p", "ab", "key")...); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := VerifyChecksum(content, pathOf("p", "ab", "key")...); err != nil || !bytes.Equal(got, content) {
		t.Errorf("without a checksum: %q, %v", got, err)
	}
	for i := range value {
		for bit := range 8 {
			changed := bytes.Clone(value)
			changed[i] ^= 1 << bit
			got, err := VerifyChecksum(changed, pathOf("p", "ab", "key")...)
			if magic := i >= len(content) && i < len(content)+len(checksumMagic); magic && len(got) != len(value) || !magic && !errors.Is(err, ErrDamagedValue) {
				t.Errorf("bit %d of byte %d is changed: %q, %v", bit, i, got, err)
			}
		}
	}
	for _, path := range [][][]byte{pathOf("q", "ab", "key"), pathOf("p", "ac", "key"), pathOf("p", "ab", "kez"), pathOf("pa", "b", "key"), pathOf("p", "abkey"), pathOf("ab", "key"), nil} {
		if _, err := VerifyChecksum(value, path...); !errors.Is(err, ErrDamagedValue) {
			t.Errorf("at %q: %v", path, err)
		}
	}
}

// TestOlderVersionsReadValues: the decoders of versions without checksums skip them.
func TestOlderVersionsReadValues(t *testing.T) {
	for value := range 100 { // different checksums
		var got int
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(AppendChecksum(text), &got); err != nil || got != value {
			t.Errorf("JSON: %d, %v", got, err)
		}
		var buf bytes.Buffer
		if err := gob.NewEncoder(&buf).Encode(value); err != nil {
			t.Fatal(err)
		}
		if err := gob.NewDecoder(bytes.NewReader(AppendChecksum(buf.Bytes()))).Decode(&got); err != nil || got != value {
			t.Errorf("gob: %d, %v", got, err)
		}
	}
}
