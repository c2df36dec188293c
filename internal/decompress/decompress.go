// Package decompress reads gzip and zstd, and recognizes both by their first bytes: the name of a
// file changes when it is rotated, and standard input has none. Its functions are safe for
// concurrent use; a reader has one owner at a time.
package decompress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// windowMax limits the memory that a zstd stream may ask for.
const windowMax = 128 << 20

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// MagicBytes is the number of bytes that Detect looks at.
const MagicBytes = 4

// Detect reports whether content that begins like this is compressed.
func Detect(begin []byte) bool {
	return bytes.HasPrefix(begin, gzipMagic) || bytes.HasPrefix(begin, zstdMagic)
}

// NewReader returns the content of in, decompressed if it is gzip or zstd. Close frees the
// decompressor and leaves in open.
func NewReader(in io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(in, 256<<10)
	begin, err := buffered.Peek(MagicBytes)
	switch {
	case bytes.HasPrefix(begin, gzipMagic):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("decompress gzip: %w", err)
		}
		return z, nil
	case bytes.HasPrefix(begin, zstdMagic):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowMax))
		if err != nil {
			return nil, fmt.Errorf("decompress zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	case err != nil && err != io.EOF:
		return nil, err
	}
	return io.NopCloser(buffered), nil
}
