package dataset

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/event"
)

// Events are the events of a data set: the rendered rows, and the clock.
type Events struct {
	rows      int
	clock     Clock
	documents texts
	lines     texts
	vectors   []event.Vector // of Columns; those that move are empty
}

// texts are mapped values back to back, as in an event.Vector.
type texts struct {
	bytes []byte
	ends  []uint32
}

// Render writes the files of rows distinct rows into folder.
func Render(folder string, rows int) error {
	w := writer{folder: folder}
	for i := range uint64(rows) {
		r := makeRow(i, uint64(rows))
		w.text("documents", func(dst []byte) []byte { return appendDocument(dst, r) })
		w.text("lines", func(dst []byte) []byte { return appendLine(dst, r) })
		for c, column := range Columns {
			switch c {
			case eventColumn:
				w.string(column.Name, r.event)
			case userColumn:
				write(&w, column.Name, r.user)
			case countryColumn:
				w.string(column.Name, r.country)
			case urlColumn:
				w.string(column.Name, r.url)
			case valueColumn:
				write(&w, column.Name, float64(r.cents)/100)
			case statusColumn:
				write(&w, column.Name, r.status)
			case metaColumn:
				w.string(column.Name, r.meta)
			}
		}
	}
	return w.close()
}

// Open maps what Render wrote.
func Open(folder string, rows int, clock Clock) (*Events, error) {
	e := &Events{rows: rows, clock: clock, vectors: make([]event.Vector, len(Columns))}
	var err error
	if e.documents, err = mapTexts(folder, "documents"); err != nil {
		return nil, err
	}
	if e.lines, err = mapTexts(folder, "lines"); err != nil {
		return nil, err
	}
	for c, column := range Columns {
		v := &e.vectors[c]
		switch c {
		case idColumn, timeColumn, hashColumn:
		case userColumn, statusColumn:
			v.Ints, err = mapValues[int64](folder, column.Name)
		case valueColumn:
			v.Floats, err = mapValues[float64](folder, column.Name)
		default:
			var t texts
			t, err = mapTexts(folder, column.Name)
			v.Bytes, v.Ends = t.bytes, t.ends
		}
		if err != nil {
			return nil, err
		}
	}
	if len(e.documents.ends) != rows {
		return nil, fmt.Errorf("%s has %d rows instead of %d", folder, len(e.documents.ends), rows)
	}
	return e, nil
}

// A writer writes the files of a folder.
type writer struct {
	folder string
	files  map[string]*file
	buffer []byte
	err    error
}

type file struct {
	*os.File
	buffer *bufio.Writer
	size   uint32
}

func (w *writer) open(name string) *file {
	if w.files == nil {
		w.files = map[string]*file{}
	}
	if f := w.files[name]; f != nil {
		return f
	}
	f, err := os.Create(filepath.Join(w.folder, name))
	w.err = errors.Join(w.err, err)
	w.files[name] = &file{File: f, buffer: bufio.NewWriterSize(f, 1<<20)}
	return w.files[name]
}

func (w *writer) text(name string, render func(dst []byte) []byte) {
	w.buffer = render(w.buffer[:0])
	f := w.open(name)
	f.size += uint32(len(w.buffer))
	_, _ = f.buffer.Write(w.buffer) // close reports it
	write(w, endsOf(name), f.size)
}

func (w *writer) string(name, value string) {
	w.text(name, func(dst []byte) []byte { return append(dst, value...) })
}

func write[T any](w *writer, name string, value T) {
	_, _ = w.open(name).buffer.Write(unsafe.Slice((*byte)(unsafe.Pointer(&value)), unsafe.Sizeof(value))) // close reports it
}

func (w *writer) close() error {
	for _, f := range w.files {
		w.err = errors.Join(w.err, f.buffer.Flush(), f.Close())
	}
	return w.err
}

func endsOf(name string) string { return name + ".ends" }

func mapTexts(folder, name string) (t texts, err error) {
	if t.bytes, err = mapValues[byte](folder, name); err == nil {
		t.ends, err = mapValues[uint32](folder, endsOf(name))
	}
	return t, err
}

// mapValues maps a file of values for the rest of the process.
func mapValues[T any](folder, name string) ([]T, error) {
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	var value T
	return unsafe.Slice((*T)(unsafe.Pointer(&mapped[0])), len(mapped)/int(unsafe.Sizeof(value))), nil
}
