//go:build linux && cgo

package eventstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/internal/testseed"
)

// TestFullDisk fills the disk at different points: while the log, a worker's files or the
// manifest are written. Appends must then fail with a full-disk error, queries must continue,
// and appends must resume when there is space.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 24<<20)
	disks := countFrom(t, "PERIGEE_STORE_FULL_DISKS", 3)
	if disk == "" {
		figures.fullDisks += disks
		return // the other process has reported the failure
	}
	folder, ballast := filepath.Join(disk, "events"), filepath.Join(disk, "ballast")
	r := testseed.New(t)
	var said []string
	for range disks {
		w := &workload{folder: folder, lanes: 1}
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		first := w.next[eventsTable]
		fillDisk(t, ballast, int64(r.IntN(1<<20)))
		failed := error(nil)
		for failed == nil {
			for _, table := range []string{eventsTable, oldTable} {
				if failed = w.partitions[table].Append(t.Context(), outputOf(first, workDocs(table, first)...)); failed != nil {
					break
				}
				said = append(said, fmt.Sprintf("ack %s %d", table, first))
			}
			first += workBatch
		}
		if event.IsPermanent(failed) || !errors.Is(failed, syscall.ENOSPC) && !strings.Contains(strings.ToLower(failed.Error()), "no space left") {
			t.Errorf("on the full disk: %v", failed)
		}
		figures.add(checkWork(t, w.store, said))
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			err := w.partitions[eventsTable].Append(t.Context(), outputOf(first, workDocs(eventsTable, first)...))
			if err == nil {
				said = append(said, fmt.Sprintf("ack %s %d", eventsTable, first))
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("with room on the disk: %v", err)
			}
		}
		figures.add(checkWork(t, w.store, said))
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
		s := openWork(t, folder)
		figures.add(checkWork(t, s, said))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// fillDisk writes a file that fills the disk except for but bytes, while others write too.
func fillDisk(t *testing.T, path string, but int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(0)
	for block := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = f.Write(block)
		size += int64(n)
	}
	if err := f.Truncate(max(size-but, 0)); err != nil {
		t.Fatal(err)
	}
}
