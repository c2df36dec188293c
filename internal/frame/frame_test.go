package frame

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func build(record string) []byte {
	f := append(Begin(nil), record...)
	Finish(f)
	return f
}

func TestRead(t *testing.T) {
	in := bytes.NewReader(append(build("one"), build("two")...))
	for _, want := range []string{"one", "two"} {
		if got, err := Read(in, nil); err != nil || string(got) != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
	}
	if _, err := Read(in, nil); err != io.EOF {
		t.Fatalf("behind the last frame: %v", err)
	}
}

// TestBytes holds the layout to what earlier versions have written.
func TestBytes(t *testing.T) {
	const want = "\x03\x00\x00\x00\xb7\x3f\x4b\x36abc" // with the CRC-32C of RFC 3720
	if got := build("abc"); string(got) != want {
		t.Errorf("the frame of abc is %q, want %q", got, want)
	}
}

func TestDamage(t *testing.T) {
	whole := build("a record that is long enough")
	for i := range whole {
		if _, err := Read(bytes.NewReader(whole[:i]), nil); i > 0 && !errors.Is(err, ErrDamaged) {
			t.Errorf("cut off after %d bytes: %v", i, err)
		}
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			if _, err := Read(bytes.NewReader(bad), nil); !errors.Is(err, ErrDamaged) {
				t.Errorf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	if _, err := Read(bytes.NewReader(make([]byte, 64)), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("zeros: %v", err)
	}
}

// TestChecksumOfParts computes the checksum of a record in two steps.
func TestChecksumOfParts(t *testing.T) {
	if got, want := Checksum(Checksum(0, []byte("one, ")), []byte("two")), Checksum(0, []byte("one, two")); got != want {
		t.Errorf("%x in parts, %x at once", got, want)
	}
}

// FuzzRead reads anything: it returns what a frame holds, or an error.
func FuzzRead(f *testing.F) {
	f.Add(build("record"))
	f.Add(make([]byte, 20))
	f.Fuzz(func(t *testing.T, data []byte) {
		record, err := Read(bytes.NewReader(data), nil)
		if err == nil && !bytes.Equal(build(string(record)), data[:PrefixSize+len(record)]) {
			t.Errorf("%q was read from %q", record, data)
		}
	})
}
