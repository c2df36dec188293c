package durable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckDir(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, filepath.Join(folder, "a", "b")} {
		if err := CheckDir(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{file, filepath.Join(file, "a")} {
		if err := CheckDir(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %d entries, %v", len(entries), err)
	}
	if os.Getuid() != 0 {
		closed := filepath.Join(folder, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		if err := CheckDir(filepath.Join(closed, "a")); err == nil {
			t.Error("a folder without permission is accepted")
		}
	}
}
