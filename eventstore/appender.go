//go:build cgo

package eventstore

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/event"
)

// An appender writes typed columns into a segment, by the chunk.
//
// Values are written into DuckDB's vectors in place: appending a row through
// driver values would box each of them, and assigning strings one by one would
// cross into C for each. A long string's entry points into the Go memory that
// the extraction left it in, which is pinned until DuckDB has copied the chunk.
type appender struct {
	tx      *conn
	segment *segment

	open    bool
	a       duck.Appender
	types   []duck.LogicalType
	chunk   duck.DataChunk
	columns []columnWriter
	size    int // rows in the chunk
	pins    runtime.Pinner
}

// columnWriter is one vector of the chunk.
type columnWriter struct {
	vector duck.Vector
	data   unsafe.Pointer
	valid  unsafe.Pointer // bitmap; nil while there is no null
}

// ensureOpen opens the appender. It waits for the first row, because an output
// without rows needs none.
func (a *appender) ensureOpen() error {
	if a.open {
		return nil
	}
	a.open = true
	schema, table := "segment", a.segment.name()[len("segment."):]
	if duck.AppenderCreateExt(a.tx.c, "", schema, table, &a.a) == duck.StateError {
		return duckError(duck.AppenderError(a.a))
	}
	for i := range duck.AppenderColumnCount(a.a) {
		a.types = append(a.types, duck.AppenderColumnType(a.a, i))
	}
	a.chunk = duck.CreateDataChunk(a.types)
	a.columns = make([]columnWriter, len(a.types))
	a.resetChunk()
	return nil
}

func (a *appender) resetChunk() {
	duck.DataChunkReset(a.chunk)
	for i := range a.columns {
		v := duck.DataChunkGetVector(a.chunk, duck.IdxT(i))
		a.columns[i] = columnWriter{vector: v, data: duck.VectorGetData(v)}
	}
	a.size = 0
}

// append writes the rows [first, end) of a buffer, which must not change until flush or close.
func (a *appender) append(d *buffer, first, end int) error {
	if err := a.ensureOpen(); err != nil {
		return err
	}
	capacity := int(duck.VectorSize())
	for first < end {
		n := min(end-first, capacity-a.size)
		for i, c := range d.spec {
			a.columns[i].copyValues(d.schema.Columns[c].Type, &d.columns.Vectors[i], first, n, a.size, &a.pins)
		}
		rest := &a.columns[len(a.columns)-1]
		if len(d.rest.Null) > 0 {
			rest.copyValues(event.JSON, &d.rest, first, n, a.size, &a.pins)
		} else {
			for row := range n {
				rest.setNull(a.size + row)
			}
		}
		a.size += n
		first += n
		if a.size == capacity {
			if err := a.sendChunk(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendChunk gives the chunk to DuckDB, which copies it.
func (a *appender) sendChunk() error {
	duck.DataChunkSetSize(a.chunk, duck.IdxT(a.size))
	state := duck.AppendDataChunk(a.a, a.chunk)
	a.pins.Unpin()
	if state == duck.StateError {
		return duckError(duck.AppenderError(a.a))
	}
	a.resetChunk()
	return nil
}

// flush brings all rows into the transaction.
func (a *appender) flush() error {
	if !a.open {
		return nil
	}
	if a.size > 0 {
		if err := a.sendChunk(); err != nil {
			return err
		}
	}
	if duck.AppenderFlush(a.a) == duck.StateError {
		return duckError(duck.AppenderError(a.a))
	}
	return nil
}

// close frees the appender. Rows that were not flushed are dropped.
func (a *appender) close() {
	if !a.open {
		return
	}
	a.pins.Unpin()
	duck.AppenderClear(a.a)
	duck.AppenderDestroy(&a.a)
	duck.DestroyDataChunk(&a.chunk)
	for i := range a.types {
		duck.DestroyLogicalType(&a.types[i])
	}
}

// copyValues copies n values of v, from row first on, to the cells from at on.
func (c *columnWriter) copyValues(t event.Type, v *event.Vector, first, n, at int, pins *runtime.Pinner) {
	switch t {
	case event.Bool:
		to := unsafe.Slice((*uint8)(c.data), at+n)[at:]
		for i, x := range v.Ints[first : first+n] {
			to[i] = uint8(x)
		}
	case event.Int32:
		to := unsafe.Slice((*int32)(c.data), at+n)[at:]
		for i, x := range v.Ints[first : first+n] {
			to[i] = int32(x)
		}
	case event.Int64, event.Timestamp:
		copy(unsafe.Slice((*int64)(c.data), at+n)[at:], v.Ints[first:first+n])
	case event.Float64:
		copy(unsafe.Slice((*float64)(c.data), at+n)[at:], v.Floats[first:first+n])
	default:
		c.copyText(v, first, n, at, pins)
	}
	for i, null := range v.Null[first : first+n] {
		if null != 0 {
			c.setNull(at + i)
		}
	}
}

// A textCell is a duckdb_string_t: the length, then up to 12 bytes of text, or
// the first 4 of them and a pointer.
type textCell struct {
	length  uint32
	prefix  [4]byte
	pointer [8]byte
}

const inlineMax = 12

func (c *columnWriter) copyText(v *event.Vector, first, n, at int, pins *runtime.Pinner) {
	if len(v.Bytes) == 0 {
		clear(unsafe.Slice((*textCell)(c.data), at+n)[at:])
		return
	}
	pins.Pin(&v.Bytes[0])
	base := uintptr(unsafe.Pointer(&v.Bytes[0]))
	to := unsafe.Slice((*textCell)(c.data), at+n)[at:]
	begin := uint32(0)
	if first > 0 {
		begin = v.Ends[first-1]
	}
	for i, end := range v.Ends[first : first+n] {
		text := v.Bytes[begin:end]
		cell := textCell{length: uint32(len(text))}
		if len(text) <= inlineMax {
			copy(cell.prefix[:], text)
			if len(text) > len(cell.prefix) {
				copy(cell.pointer[:], text[len(cell.prefix):])
			}
		} else {
			copy(cell.prefix[:], text)
			binary.NativeEndian.PutUint64(cell.pointer[:], uint64(base)+uint64(begin))
		}
		to[i] = cell
		begin = end
	}
}

func (c *columnWriter) setNull(row int) {
	if c.valid == nil {
		duck.VectorEnsureValidityWritable(c.vector)
		c.valid = duck.VectorGetValidity(c.vector)
	}
	unsafe.Slice((*uint64)(c.valid), row/64+1)[row/64] &^= 1 << (row % 64)
}
