package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// checksums writes SHA256SUMS, which "sha256sum -c" reads, and prints the size of each file.
func (r *release) checksums() error {
	slices.Sort(r.files)
	var sums []byte
	for _, name := range r.files {
		file, err := os.Open(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		hash := sha256.New()
		size, err := io.Copy(hash, file)
		file.Close()
		if err != nil {
			return err
		}
		sums = fmt.Appendf(sums, "%x  %s\n", hash.Sum(nil), name)
		fmt.Printf("%8.1f MB  %s\n", float64(size)/1e6, name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums, 0o644)
}
