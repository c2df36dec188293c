package file

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/perigeedb/perigee/internal/decompress"
	"github.com/perigeedb/perigee/source/format"
)

// isCompressed reports whether content is gzip or zstd.
func isCompressed(f io.ReaderAt) (bool, error) {
	begin := make([]byte, decompress.MagicBytes)
	n, err := f.ReadAt(begin, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	return decompress.Detect(begin[:n]), nil
}

// plainContent is the content of a file that is not compressed.
type plainContent struct{ io.Reader }

func (plainContent) Close() error { return nil }

// openContent returns the content of f, which is at its start, decompressed. Close leaves f
// open.
func openContent(f interface {
	io.Reader
	io.ReaderAt
}) (io.ReadCloser, error) {
	compressed, err := isCompressed(f)
	if err != nil || !compressed {
		return plainContent{f}, err
	}
	return decompress.NewReader(f)
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
