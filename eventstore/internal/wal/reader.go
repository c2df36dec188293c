package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

// A Reader reads the entries of one file in order. It is not safe for concurrent use.
type Reader struct {
	file   *os.File
	window window
	header header
	offset int64 // of the next frame
	at     int64 // of the returned entry
	size   int64 // of the returned entry's frame
	entry  Entry
}

// OpenReader opens the file with the given number. It returns os.ErrNotExist if the file was
// removed.
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

// openFile opens a file without checking its header.
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

// Next returns the next entry before the offset until, which must be an End of the file. It
// returns io.EOF if there is none. The entry is valid until the next call. It returns
// os.ErrNotExist if the log has removed the file meanwhile, and frame.ErrDamaged for an
// incomplete frame. To continue after the damage, call SeekTo with the end of the damaged
// part.
func (r *Reader) Next(until int64) (*Entry, error) {
	r.window.limit = until // data after it may not be written yet
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

// explain returns the reason that no entry can be read.
func (r *Reader) explain(err error) error {
	h := make([]byte, headerSize)
	if _, readErr := r.file.ReadAt(h, 0); readErr == nil {
		if now, parseErr := parseHeader(h, r.header.number); parseErr != nil || now.key != r.header.key {
			err = fmt.Errorf("it was removed: %w", os.ErrNotExist) // it is another log file now
		}
	}
	return fmt.Errorf("%s: offset %d: %w", r.file.Name(), r.offset, err)
}

// Position returns the position of the entry that Next returned.
func (r *Reader) Position() Position { return Position{File: r.header.number, Offset: r.at} }

// FrameSize returns the size of the returned entry's frame in bytes.
func (r *Reader) FrameSize() int64 { return r.size }

// SeekTo makes the entry at offset the next one. The offset must come from the log: from a
// Position, or the End of a Span.
func (r *Reader) SeekTo(offset int64) { r.offset = max(offset, headerSize) }

// Close frees the reader and the memory of its entries.
func (r *Reader) Close() error { return r.file.Close() }

// readRecord returns the record of the frame at an offset, and the size of the frame. It
// returns frame.ErrDamaged if there is no complete frame that was written for this place.
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
	limit      int64 // read nothing beyond it
	at         int64
	data       []byte
	unreadable error // error of the disk for an unreadable part
}

const windowSize = 256 << 10

// read returns n bytes from an offset, which must be a multiple of 8. The bytes are valid
// until the next call. It returns frame.ErrDamaged if there are fewer before the limit.
// Unreadable parts of the disk read as zeros.
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

// readSome returns bytes from an offset before the limit: as many as are in memory, at least
// one. Bytes after the end of the file read as zeros.
func (w *window) readSome(offset int64) []byte {
	if _, err := w.read(offset, 1); err != nil {
		return make([]byte, min(w.limit-offset, windowSize))
	}
	return w.data[offset-w.at:]
}

// readPages fills the window with the readable pages of the disk.
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

// ReadFile calls each for every entry of a log file up to its end, with the size of its frame in bytes.
// An entry is valid during the call.
func ReadFile(folder string, end FileEnd, each func(e *Entry, size int64)) error {
	r, err := OpenReader(folder, end.Number)
	if errors.Is(err, fs.ErrNotExist) && len(end.Damaged) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	for _, damaged := range append(slices.Clone(end.Damaged), Span{Begin: end.End, End: end.End}) {
		for {
			e, err := r.Next(damaged.Begin)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			each(e, r.FrameSize())
		}
		r.SeekTo(damaged.End)
	}
	return nil
}
