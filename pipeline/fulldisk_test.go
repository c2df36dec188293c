//go:build linux

package pipeline

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/file"
)

// TestFullDisk lets the disk of a file sink be full: the pipeline retries and says why, and
// goes on when there is room. No event becomes a dead letter, and each is written once.
func TestFullDisk(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, disk string) (makeRoom func()){
		"no block is free": func(t *testing.T, disk string) func() {
			ballast := filepath.Join(disk, "ballast")
			powercut.Fill(t, ballast, 50<<10)
			return func() { removeAll(t, ballast) }
		},
		"no file can be made": func(t *testing.T, disk string) func() {
			if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "nr_inodes=20"); err != nil {
				t.Fatal(err)
			}
			for i := 0; ; i++ {
				if err := os.Mkdir(filepath.Join(disk, fmt.Sprint("ballast", i)), 0o700); err != nil {
					break
				}
			}
			return func() {
				for i := range 10 {
					removeAll(t, filepath.Join(disk, fmt.Sprint("ballast", i)))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if disk := powercut.SmallDisk(t, 1<<20); disk != "" {
				writeToFullDisk(t, disk, fill)
			}
		})
	}
}

func writeToFullDisk(t *testing.T, disk string, fill func(t *testing.T, disk string) (makeRoom func())) {
	const events = 2000
	folder := filepath.Join(disk, "rows")
	makeRoom := fill(t, disk)
	to, err := file.New(sink.Env{Pipeline: "test"}, file.Config{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	long := func(_ uint64, doc string) ([]string, error) { return []string{doc + strings.Repeat(" ", 100)}, nil }
	r := newHarness(t, newMemorySource(newMemoryPartition("a", events)), testScript{main: long}, to)
	ended := r.start(t.Context())
	for end := time.Now().Add(time.Minute); r.Stats().State != Retrying; time.Sleep(time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("on the full disk the pipeline ended with %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("on the full disk the pipeline does not retry: %+v", r.Stats())
		}
	}
	t.Cleanup(func() {
		if err := to.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("not ready for %v", err)
	}
	makeRoom()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("with room on the disk the pipeline does not go on: %+v", r.Stats())
	}
	if dead := r.deadLetters(t); len(dead) > 0 {
		t.Errorf("%d dead letters, the first %+v", len(dead), dead[0])
	}
	files, err := filepath.Glob(filepath.Join(folder, "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			rows = append(rows, string(bytes.TrimSpace(line)))
		}
	}
	expectSame(t, "rows", newMemoryPartition("a", events).docs, rows)
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}
