package script

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/leaktest"
)

func TestFolder(t *testing.T) {
	outer := t.TempDir()
	inner := filepath.Join(outer, "scripts")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outer, "secret.lua"), "secret")
	write(filepath.Join(inner, "lib", "a.lua"), "text")
	write(filepath.Join(inner, "large.lua"), strings.Repeat(" ", fileMax+1))
	if err := os.Symlink("../secret.lua", filepath.Join(inner, "link.lua")); err != nil {
		t.Fatal(err)
	}
	read := Folder(inner)
	if text, err := read("lib/a.lua"); err != nil || string(text) != "text" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := read("lib/b.lua"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "lib/b.lua") {
		t.Errorf("error is %v, want that the file does not exist", err)
	}
	for _, path := range []string{"../secret.lua", "link.lua", filepath.Join(outer, "secret.lua"), "lib", "large.lua"} {
		if text, err := read(path); err == nil {
			t.Errorf("%s gave %d bytes", path, len(text))
		}
	}
}

// TestFolderClosesFiles: what was read, or could not be, leaves no file open.
func TestFolderClosesFiles(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.lua"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := Folder(folder)
	leaktest.Closed(t, folder, func() {
		for _, path := range []string{"a.lua", "b.lua", "../a.lua", "."} {
			_, _ = read(path)
		}
	})
}
