//go:build cgo && lmdb

package nodedb

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestIdleSessions: the file does not grow while others write and sessions wait in the pool.
func TestIdleSessions(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text := strings.Repeat("x", 1000)
	write := func() uint64 {
		t.Helper()
		for round := range 40 {
			err := s.Update(context.Background(), func(tx *Tx) error {
				for i := range 200 {
					if err := tx.Set(Name("^idle").At(i), fmt.Sprint(round, text)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		stat, err := s.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return stat.UsedBytes + stat.FreeBytes
	}
	before := write()
	// Two sessions at once: the one that reads inside waits in the pool from then on.
	get := func(inside func() error) error {
		return s.View(context.Background(), func(tx *Tx) error {
			if _, err := tx.Get(Name("^idle").At(1)); err != nil {
				return err
			}
			return inside()
		})
	}
	if err := get(func() error { return get(func() error { return nil }) }); err != nil {
		t.Fatal(err)
	}
	if after := write(); after > before+before/2 {
		t.Errorf("the file grew from %d to %d bytes while a session waited", before, after)
	}
}
