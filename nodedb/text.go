package nodedb

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
)

// Dump writes the nodes of some subtrees, or of the whole store, as text in M's ZWRITE format,
// which Load reads: one line for each node that has a value.
//
//	^users(7,"name")="Ada"
//
// It reads one snapshot, while others write. The text does not contain expiry times. If progress is
// not nil, Dump calls it from time to time with the number of nodes written.
func (s *Store) Dump(ctx context.Context, w io.Writer, progress func(nodes uint64), paths ...Path) error {
	if len(paths) == 0 {
		paths = []Path{{}}
	}
	return s.View(ctx, func(tx *Tx) error {
		var nodes uint64
		var text []byte
		for _, p := range paths {
			scan := nativeScan{descendants: true, self: true, values: true}
			err := tx.eachBatch(ctx, "dump", p, scan, func(it nativeIterator, count int) (bool, error) {
				err := tx.call("dump", p, func(nativeSession) (err error) {
					text, err = it.appendText(text[:0])
					return err
				})
				if err == nil {
					_, err = w.Write(text)
				}
				if nodes += uint64(count); progress != nil {
					progress(nodes)
				}
				return true, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// String returns the node as Dump writes it, without the end of the line.
func (n Node) String() string { return n.Path.String() + "=" + scalarText(n.Value) }

// linesPerLoad is the number of lines that Load processes in one transaction.
const linesPerLoad = 10_000

// Load sets the nodes that a dump lists, and returns their number. Other nodes keep their values.
// Load commits after every 10,000 lines. After an error, the lines committed before remain; it is
// safe to load the same text again. It skips blank lines and the two header lines of an M extract.
// When Load returns nil, the nodes are durable. If progress is not nil, Load calls it from time to
// time with the number of lines loaded.
func (s *Store) Load(ctx context.Context, r io.Reader, progress func(lines uint64)) (nodes uint64, err error) {
	if s.readOnly {
		return 0, &Error{Op: "load", Err: ErrReadOnly}
	}
	lines := &lineReader{in: bufio.NewReaderSize(r, 64<<10)}
	session, err := s.Session()
	if err != nil {
		return 0, err
	}
	defer session.Close()
	for {
		batch, readErr := lines.readBatch(linesPerLoad)
		if len(batch) > 0 {
			_, err := update(ctx, session.session, func(tx *Tx) error { return tx.loadLines(batch) })
			if err != nil {
				return nodes, err
			}
			nodes += uint64(len(batch))
			if progress != nil {
				progress(nodes)
			}
		}
		switch {
		case readErr == io.EOF:
			return nodes, s.Sync()
		case readErr != nil:
			return nodes, fmt.Errorf("read line %d: %w", lines.number+1, readErr)
		}
	}
}

func (tx *Tx) loadLines(batch []line) error {
	for _, l := range batch {
		at := 0
		err := tx.call(fmt.Sprintf("load line %d", l.number), Path{}, func(core nativeSession) (err error) {
			at, err = core.load(l.text)
			return err
		})
		if failed, ok := err.(*Error); ok && failed.Err == ErrArgument {
			failed.Op += fmt.Sprintf(", column %d", at+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A line is one line of a dump.
type line struct {
	number int
	text   string
}

// A lineReader reads the node lines of a dump.
type lineReader struct {
	in     *bufio.Reader
	number int
	header bool // skip the first two lines, the header of an extract
}

// lineMax is the longest line: a value of ValueMax bytes, each written as $C(255)_.
const lineMax = 9*ValueMax + 64<<10

// batchBytesMax is the text size at which a batch ends; its last line may exceed it.
const batchBytesMax = 16 << 20

// readBatch returns up to n lines, and the error that follows them.
func (r *lineReader) readBatch(n int) (batch []line, err error) {
	for size := 0; len(batch) < n && size < batchBytesMax && err == nil; {
		var text []byte
		text, err = r.readLine()
		if len(text) == 0 {
			continue
		}
		size += len(text)
		batch = append(batch, line{r.number, string(text)})
	}
	return batch, err
}

// readLine returns the next line without its line end. The text is valid until the next call.
func (r *lineReader) readLine() ([]byte, error) {
	var text []byte
	for {
		piece, err := r.in.ReadSlice('\n')
		if text == nil && err == nil {
			text = piece
		} else {
			text = append(text, piece...)
		}
		if err == bufio.ErrBufferFull {
			if len(text) > lineMax {
				return nil, invalid("load", "the line has more than %d bytes", lineMax)
			}
			continue
		}
		if len(text) > 0 {
			r.number++
		}
		text = bytes.TrimRight(text, "\r\n")
		if r.number == 1 {
			text = bytes.Clone(text) // beginsExtract moves the buffer's contents
			r.header = r.beginsExtract(text)
		}
		if r.header && r.number <= 2 {
			text = nil
		}
		return text, err
	}
}

// beginsExtract reports whether the input starts with the header of an M extract: a label line, and
// a line that ends with the name of the format.
func (r *lineReader) beginsExtract(label []byte) bool {
	const headerMax = 256 // bytes of a line with a date and a format
	next, _ := r.in.Peek(headerMax)
	second, _, whole := bytes.Cut(next, []byte("\n"))
	return !isNode(label) && !isNode(second) && (whole || len(next) < headerMax) && bytes.HasSuffix(bytes.TrimRight(second, "\r"), []byte("ZWR"))
}

func isNode(line []byte) bool { return bytes.HasPrefix(line, []byte("^")) }
