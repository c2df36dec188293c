package wal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestReadPages reads page by page up to the end of a file, inside a page or at its end.
func TestReadPages(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 10_000, 12_288} {
		content := bytes.Repeat([]byte("12345678"), size/8+1)[:size]
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		w := window{file: file, data: make([]byte, 12_288)}
		if got := w.readPages(0); got != size || !bytes.Equal(w.data[:got], content) {
			t.Errorf("read %d of %d bytes", got, size)
		}
		_ = file.Close()
	}
}
