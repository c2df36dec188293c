package stores

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/event"
)

// raw writes the bytes of the columns to a file and syncs it, and that is all.
type raw struct {
	events *dataset.Events
	file   *os.File
}

// rawBytes is the size at which the file begins anew, so that it does not fill the disk.
const rawBytes = 1 << 30

func openRaw(folder string, events *dataset.Events) (*raw, error) {
	file, err := os.Create(filepath.Join(folder, "raw"))
	return &raw{events, file}, err
}

func (r *raw) Query(context.Context, string) (Result, error) { return Result{}, errors.ErrUnsupported }
func (r *raw) TimeLiteral(int64) string                      { return "" }
func (r *raw) Close() error                                  { return r.file.Close() }
func (r *raw) NewWriter() (Writer, error)                    { return &rawWriter{store: r}, nil }

type rawWriter struct {
	store   *raw
	columns event.Columns
	bytes   []byte
	written int
}

func (w *rawWriter) Prepare(first uint64, n int) {
	w.store.events.Columns(&w.columns, first, n)
	w.bytes = w.bytes[:0]
	for _, v := range w.columns.Vectors {
		w.bytes = append(w.bytes, v.Bytes...)
		w.bytes = appendValues(w.bytes, v.Ends)
		w.bytes = appendValues(w.bytes, v.Ints)
		w.bytes = appendValues(w.bytes, v.Floats)
	}
}

func appendValues[T any](dst []byte, values []T) []byte {
	if len(values) == 0 {
		return dst
	}
	return append(dst, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))...)
}

func (w *rawWriter) Commit(context.Context) error {
	file := w.store.file
	if w.written += len(w.bytes); w.written > rawBytes {
		w.written = len(w.bytes)
		if err := file.Truncate(0); err != nil {
			return err
		}
		if _, err := file.Seek(0, 0); err != nil {
			return err
		}
	}
	if _, err := file.Write(w.bytes); err != nil {
		return err
	}
	return unix.Fdatasync(int(file.Fd()))
}

func (w *rawWriter) Close() error { return nil }
