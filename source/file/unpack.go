package file

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// unpacked is the content of a file. Close frees what unpacks it, not the file.
type unpacked interface {
	io.Reader
	Close()
}

type (
	plain    struct{ io.Reader }
	gunzip   struct{ *gzip.Reader }
	unpackZs struct{ *zstd.Decoder }
)

func (plain) Close()    {}
func (g gunzip) Close() { _ = g.Reader.Close() }

// The bytes that packed content begins with.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// unpack tells by the first bytes how the content is packed: names lie.
func unpack(f io.ReadSeeker) (unpacked, error) {
	first := make([]byte, 4)
	n, err := io.ReadFull(f, first)
	if err != nil && n == 0 && err != io.EOF {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(first[:n], gzipMagic):
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return nil, fmt.Errorf("unpack gzip: %w", err)
		}
		return gunzip{z}, nil
	case bytes.HasPrefix(first[:n], zstdMagic):
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("unpack zstd: %w", err)
		}
		return unpackZs{z}, nil
	}
	return plain{f}, nil
}
