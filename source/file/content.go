package file

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/perigeedb/perigee/source/format"
)

// content is the decompressed content of a file. Close frees the decompressor; the
// file stays open.
type content interface {
	io.Reader
	Close()
}

type (
	plainContent struct{ io.Reader }
	gzipContent  struct{ *gzip.Reader }
	zstdContent  struct{ *zstd.Decoder }
)

func (plainContent) Close()  {}
func (g gzipContent) Close() { _ = g.Reader.Close() }

// The bytes that compressed content starts with.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// detectCompression returns the magic bytes of compressed content, or nil. It does
// not rely on the name, because log rotation changes that before it compresses.
func detectCompression(f io.ReaderAt) ([]byte, error) {
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

// decompress returns the content of f, which is at its start.
func decompress(f interface {
	io.Reader
	io.ReaderAt
}) (content, error) {
	magic, err := detectCompression(f)
	switch {
	case err != nil:
		return nil, err
	case bytes.Equal(magic, gzipMagic):
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return nil, fmt.Errorf("decompress gzip: %w", err)
		}
		return gzipContent{z}, nil
	case bytes.Equal(magic, zstdMagic):
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("decompress zstd: %w", err)
		}
		return zstdContent{z}, nil
	}
	return plainContent{f}, nil
}

// countRecords counts records. countLast says whether a last one without a newline is one.
func countRecords(ctx context.Context, in io.Reader, as format.Format, countLast bool) (uint64, error) {
	if !as.MaySpanLines() {
		return countLines(ctx, in, countLast)
	}
	lines := newLineReader(in, as)
	for ctx.Err() == nil {
		if _, err := lines.readLine(countLast); errors.Is(err, io.EOF) {
			return lines.position, nil
		} else if err != nil {
			return 0, err
		}
	}
	return 0, ctx.Err()
}

// countLines counts lines. countLast says whether a last line without a newline is one.
func countLines(ctx context.Context, in io.Reader, countLast bool) (n uint64, err error) {
	buf, last := make([]byte, readBuffer), byte('\n')
	for ctx.Err() == nil {
		read, err := in.Read(buf)
		if read > 0 {
			n += uint64(bytes.Count(buf[:read], []byte("\n")))
			last = buf[read-1]
		}
		if errors.Is(err, io.EOF) {
			if countLast && last != '\n' {
				n++
			}
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, ctx.Err()
}
