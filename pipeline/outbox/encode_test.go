package outbox

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/boltfile"
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
	for i := range value {
		changed := bytes.Clone(value)
		changed[i] ^= 1
		if _, err := decodeEntry(key, changed); !errors.Is(err, boltfile.ErrDamagedValue) {
			t.Errorf("byte %d is changed: %v", i, err)
		}
	}
	older := 0
	for i := range value {
		e, err := decodeEntry(key, value[:i])
		if err == nil {
			older++
			if diff := cmp.Diff(want, e); diff != "" {
				t.Errorf("cut off at byte %d: %s", i, diff)
			}
		} else if !errors.Is(err, boltfile.ErrDamagedValue) {
			t.Errorf("cut off at byte %d: %v", i, err)
		} else if _, err := decodeEntry(entryKey("p", "a", 41), value[:i]); !errors.Is(err, boltfile.ErrDamagedValue) {
			t.Errorf("cut off at byte %d, under another key: %v", i, err)
		}
	}
	if older != 1 {
		t.Errorf("%d entries without a checksum were read", older)
	}
	if _, err := decodeEntry(entryKey("p", "a", 41), value); !errors.Is(err, boltfile.ErrDamagedValue) {
		t.Errorf("under another key: %v", err)
	}
}

// TestDamagedEntryIsPermanent: retrying does not help, and the error says where and what to do.
func TestDamagedEntryIsPermanent(t *testing.T) {
	s := open(t, t.TempDir())
	defer closed(t, s)
	for _, first := range []uint64{40, 41} {
		if err := s.Put(entryOf("p", "a", first)); err != nil {
			t.Fatal(err)
		}
	}
	err := s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(entriesBucket)
		value := bytes.Clone(b.Get(entryKey("p", "a", 41)))
		value[len(value)/2] ^= 1
		return b.Put(entryKey("p", "a", 41), value)
	})
	if err != nil {
		t.Fatal(err)
	}
	var firsts []uint64
	for e, err := range s.Entries("p", "a") {
		if err == nil {
			firsts = append(firsts, e.Batch.Range.First)
			continue
		}
		if !event.IsPermanent(err) || !errors.Is(err, boltfile.ErrDamagedValue) || !strings.Contains(event.HintOf(err), s.db.Path()) {
			t.Errorf("%v, hint %q", err, event.HintOf(err))
		}
		if want := "p, partition a, position 41 in " + s.db.Path(); !strings.Contains(err.Error(), want) {
			t.Errorf("%v: it does not say %q", err, want)
		}
		firsts = append(firsts, 0)
	}
	if diff := cmp.Diff([]uint64{40, 0}, firsts); diff != "" {
		t.Error(diff)
	}
}
