package wal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

// A Reader reads the entries of one file in order.
type Reader struct {
	file   *os.File
	window window
	header header
	offset int64 // of the next frame
	at     int64 // of the entry that was returned
	size   int64 // of its frame
	entry  Entry
}

// OpenReader opens the file with a number. A file that was removed is os.ErrNotExist.
func OpenReader(folder string, number uint64) (*Reader, error) {
	r, err := openFile(folder, number)
	if err != nil {
		return nil, err
	}
	if r.header, err = r.readHeader(number); err != nil {
		_ = r.file.Close()
		return nil, fmt.Errorf("%s: %w", r.file.Name(), err)
	}
	return r, nil
}

// openFile opens a file without a look at its header.
func openFile(folder string, number uint64) (*Reader, error) {
	f, err := durable.Open(Path(folder, number))
	if err != nil {
		return nil, err
	}
	return &Reader{file: f, window: window{file: f}, offset: headerSize, entry: Entry{Columns: new(event.Columns)}}, nil
}

func (r *Reader) readHeader(number uint64) (header, error) {
	r.window.limit = headerSize
	b, err := r.window.read(0, headerSize)
	if err != nil {
		return header{}, errors.New("its header is missing")
	}
	if r.window.unreadable != nil {
		return header{}, fmt.Errorf("its header cannot be read (%w)", r.window.unreadable)
	}
	return parseHeader(b, number)
}

// Next returns the next entry before offset until, which is an End of the file: io.EOF says
// that there is none. The entry is valid until the next call. os.ErrNotExist says that the
// log has removed the file meanwhile. A frame that is not whole is frame.ErrDamaged; SeekTo
// the end of the damaged part goes on behind it.
func (r *Reader) Next(until int64) (*Entry, error) {
	r.window.limit = until // what is behind may not be written yet
	for r.offset < until {
		record, size, err := r.readRecord(r.offset)
		if err == nil && Kind(record[0]) < beginMark {
			err = r.entry.Decode(record)
		}
		if err != nil {
			return nil, r.explain(err)
		}
		r.at, r.size = r.offset, size
		r.offset += size
		if Kind(record[0]) < beginMark {
			return &r.entry, nil
		}
	}
	return nil, io.EOF
}

// explain tells why no entry can be read.
func (r *Reader) explain(err error) error {
	h := make([]byte, headerSize)
	if _, readErr := r.file.ReadAt(h, 0); readErr == nil {
		if now, parseErr := parseHeader(h, r.header.number); parseErr != nil || now.key != r.header.key {
			err = fmt.Errorf("it was removed: %w", os.ErrNotExist) // and is another file of the log now
		}
	}
	return fmt.Errorf("%s: offset %d: %w", r.file.Name(), r.offset, err)
}

// Position returns where the entry that Next has returned begins.
func (r *Reader) Position() Position { return Position{File: r.header.number, Offset: r.at} }

// FrameSize returns the bytes of the frame of the entry that Next has returned.
func (r *Reader) FrameSize() int64 { return r.size }

// SeekTo makes the entry at an offset the next one. The offset is one that the log has given:
// of a Position, or the End of a Span.
func (r *Reader) SeekTo(offset int64) { r.offset = max(offset, headerSize) }

// Close frees the reader and the memory of its entries.
func (r *Reader) Close() error { return r.file.Close() }

// readRecord returns the record of the frame at an offset, and the size of the frame. frame.ErrDamaged says that there is no whole frame that was written for
// this place.
func (r *Reader) readRecord(offset int64) (record []byte, size int64, err error) {
	prefix, err := r.window.read(offset, frame.PrefixSize)
	if err != nil {
		return nil, 0, err
	}
	length, checksum, err := frame.ParsePrefix(prefix)
	size = int64(frame.PrefixSize + length)
	if err != nil || length%8 != 0 || length < trailerSize || size > r.window.limit-offset {
		return nil, 0, frame.ErrDamaged
	}
	whole, err := r.window.read(offset, int(size))
	if err != nil {
		return nil, 0, err
	}
	record = whole[frame.PrefixSize:]
	if t := parseTrailer(record); t.key != r.header.key || t.offset != offset || frame.Checksum(0, record) != checksum {
		return nil, 0, frame.ErrDamaged
	}
	return record, size, nil
}

// A window is the part of a file that is in memory.
type window struct {
	file       *os.File
	limit      int64 // nothing is read beyond
	at         int64
	data       []byte
	unreadable error // what the disk said of a part that it could not read
}

const windowSize = 256 << 10

// read returns n bytes from an offset on, which is a multiple of 8; they are valid until the
// next call. frame.ErrDamaged says that there are fewer before the limit. What the disk
// cannot read is zeros.
func (w *window) read(offset int64, n int) ([]byte, error) {
	if from := offset - w.at; from >= 0 && from <= int64(len(w.data)) && int64(n) <= int64(len(w.data))-from {
		return w.data[from:][:n:n], nil
	}
	if int64(n) > w.limit-offset {
		return nil, frame.ErrDamaged
	}
	size := int(min(int64(max(n, windowSize)), w.limit-offset))
	if cap(w.data) < size {
		w.data = make([]byte, max(size, windowSize))
	}
	w.at, w.data = offset, w.data[:size]
	got, err := w.file.ReadAt(w.data, offset)
	if err != nil && err != io.EOF {
		got = w.readPages(offset)
		w.unreadable = err
	}
	w.data = w.data[:got]
	if got < n {
		return nil, frame.ErrDamaged
	}
	return w.data[:n:n], nil
}

// readSome returns bytes from an offset before the limit on, as many as are in memory and at
// least one. Behind the end of the file there are zeros.
func (w *window) readSome(offset int64) []byte {
	if _, err := w.read(offset, 1); err != nil {
		return make([]byte, min(w.limit-offset, windowSize))
	}
	return w.data[offset-w.at:]
}

// readPages fills the window with what the disk can read of it.
func (w *window) readPages(offset int64) (got int) {
	const page = 4 << 10
	for got < len(w.data) {
		part := w.data[got:min(got+page, len(w.data))]
		n, err := w.file.ReadAt(part, offset+int64(got))
		if err == io.EOF {
			return got + n
		}
		if err != nil {
			clear(part)
		}
		got += len(part)
	}
	return got
}
