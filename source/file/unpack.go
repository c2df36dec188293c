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

// magic returns the bytes that say how the content is packed, or nil. Names lie.
func magic(f io.ReaderAt) ([]byte, error) {
	first := make([]byte, 4)
	n, err := f.ReadAt(first, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	for _, m := range [][]byte{gzipMagic, zstdMagic} {
		if bytes.HasPrefix(first[:n], m) {
			return m, nil
		}
	}
	return nil, nil
}

// content is a file, or a part of one, at its beginning.
type content interface {
	io.Reader
	io.ReaderAt
}

// unpack tells by the first bytes how the content is packed.
func unpack(f content) (unpacked, error) {
	first, err := magic(f)
	switch {
	case err != nil:
		return nil, err
	case bytes.Equal(first, gzipMagic):
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return nil, fmt.Errorf("unpack gzip: %w", err)
		}
		return gunzip{z}, nil
	case bytes.Equal(first, zstdMagic):
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("unpack zstd: %w", err)
		}
		return unpackZs{z}, nil
	}
	return plain{f}, nil
}
