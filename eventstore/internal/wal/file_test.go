package wal

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// TestSpareSize checks which files become the spare: files of the usual size, one at a time.
func TestSpareSize(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	for size, spare := range map[int64]bool{
		small.FileSize - 1: false, small.FileSize: true, small.FileSize + 1: true, 2*small.FileSize - 1: true, 2 * small.FileSize: false,
	} {
		for number := range uint64(2) {
			if err := os.WriteFile(Path(folder, 100+number), bytes.Repeat([]byte("x"), int(size)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l.mu.Lock()
		err := errors.Join(l.discardFile(100), l.discardFile(101), l.discardFile(102))
		if l.hasSpare != spare {
			t.Errorf("a file of %d bytes becomes the next one: %v", size, l.hasSpare)
		}
		l.hasSpare = false
		l.mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		left, _ := listFiles(folder)
		if _, err := os.Stat(folder + "/" + spareName); len(left) > 0 || (err == nil) != spare {
			t.Errorf("of files of %d bytes, %v are left, and a spare one: %v", size, left, err)
		}
		_ = os.Remove(folder + "/" + spareName)
	}
}
