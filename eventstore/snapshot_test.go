//go:build linux && cgo

package eventstore

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// TestGarbageStays checks that unneeded files are removed, with a retry after a failure, but
// not before readers of earlier versions have ended.
func TestGarbageStays(t *testing.T) {
	s := openStore(t, t.TempDir())
	var tries atomic.Int32
	earlier := s.snapshot()
	remove := func() error {
		if tries.Add(1) == 1 {
			return errors.New("refused")
		}
		return nil
	}
	if err := s.change(func(*manifest.Manifest) error { return nil }, &garbage{remove: remove}); err != nil {
		t.Fatal(err)
	}
	later := s.snapshot()
	if err := s.collectGarbage(); err != nil || tries.Load() != 0 {
		t.Fatalf("while an earlier reader runs: got %d removals and error %v, want none", tries.Load(), err)
	}
	earlier.release()
	earlier.release() // a second release does nothing
	await(t, "the garbage is gone", func() bool {
		wake(s.sealer)
		return tries.Load() == 2
	})
	later.release()
	wake(s.sealer)
	if err := s.collectGarbage(); err != nil || tries.Load() != 2 {
		t.Errorf("after the removal: got %d removals and error %v, want 2 and none", tries.Load(), err)
	}
	// All readers have ended, so new garbage goes at once.
	if err := s.change(func(*manifest.Manifest) error { return nil }, &garbage{remove: remove}); err != nil {
		t.Fatal(err)
	}
	await(t, "the next garbage is gone", func() bool {
		wake(s.sealer)
		return tries.Load() == 3
	})
}

// TestKeepFiles keeps the files of one table: those of another one go meanwhile.
func TestKeepFiles(t *testing.T) {
	s := openStore(t, t.TempDir())
	removed := map[uint32]bool{}
	release := s.keepFiles(1)
	for _, table := range []uint32{1, 2} {
		if err := s.change(func(*manifest.Manifest) error { return nil }, &garbage{table: table, remove: func() error { removed[table] = true; return nil }}); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, s, func() bool { return !s.hasGarbage(2, s.current().Version) })
	if !s.hasGarbage(1, s.current().Version) {
		t.Error("files that are kept are removed")
	}
	release()
	waitUntil(t, s, func() bool { return !s.hasGarbage(1, s.current().Version) })
	if !removed[1] || !removed[2] {
		t.Errorf("removed the files of %v, want those of both tables", removed)
	}
}
