package file

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/perigeedb/perigee/event"
)

// bounds counts the lines of the file. A stream, which can be read only once, has none.
func (s *Source) bounds(ctx context.Context) (map[string]event.Range, error) {
	info, err := os.Stat(s.path)
	if s.path == "-" || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	f, name, err := s.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	in, err := unpack(f)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	n, err := count(ctx, in, !s.follow)
	return map[string]event.Range{name: {Count: n}}, err
}

// count counts lines; partial says that a last one without its end is one.
func count(ctx context.Context, in io.Reader, partial bool) (n uint64, err error) {
	buf, last := make([]byte, readBuffer), byte('\n')
	for ctx.Err() == nil {
		read, err := in.Read(buf)
		if read > 0 {
			n += uint64(bytes.Count(buf[:read], []byte("\n")))
			last = buf[read-1]
		}
		if errors.Is(err, io.EOF) {
			if partial && last != '\n' {
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
