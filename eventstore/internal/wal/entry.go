package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/frame"
)

// A Kind is the kind of an entry.
type Kind uint8

const (
	// Rows records rows and the range of events that they complete. The range may cover
	// more events than there are rows, and there may be no rows.
	Rows Kind = 1
	// Reset records that all positions of a partition before Range.Count are committed,
	// and all others are not.
	Reset Kind = 2

	// Marks of the log itself. Readers skip them.
	beginMark Kind = 128 // first frame of a file
	endMark   Kind = 129 // follows the last entry of a closed file
)

// An Entry is the unit that Append makes durable: rows of one table from one partition, and
// the range of events that they complete.
//
// A decoded entry has the types of its columns but not their names, and no Null bytes in a
// column without nulls. It shares memory with its reader.
type Entry struct {
	Kind                Kind
	Table               uint32
	Schema              uint64 // version of the table's schema
	Pipeline, Partition string
	Range               event.Range
	MinTime, MaxTime    int64 // of the rows, in microseconds since 1970; 0 in a table without event time
	Appended            int64 // creation time of the entry, in microseconds since 1970
	IDs                 []int32
	Columns             *event.Columns // IDs[c] belongs to Columns.Vectors[c]; nil for no rows
}

// Rows returns the number of rows.
func (e *Entry) Rows() int {
	if e.Columns == nil {
		return 0
	}
	return e.Columns.Rows
}

// The record of an entry. Offsets count from the start of the record. Every array starts at a
// multiple of 8, so that a reader can map one column without touching the others.
//
//	 0 kind (1 byte), zeros to 4
//	 4 table
//	 8 schema version (8 bytes)
//	16 number of rows
//	20 number of columns
//	24 minimum event time (8)
//	32 maximum event time (8)
//	40 first position of the range (8)
//	48 number of events in the range (8)
//	56 time of the append (8)
//	64 length of the pipeline's name
//	68 length of the partition's name
//	72 offset of the names, back to back
//	76 offset of the fingerprints (4 bytes each); 0 for none
//	80 the columns, then names, fingerprints and arrays in any order, then the trailer
//
// A column:
//
//	 0 id
//	 4 type (1 byte), layout (1), zeros to 8
//	 8 offset of the null bytes, one per row; 0 if no row is null
//	12 offset of the values
//	16 length of the values in bytes
//	20 offset of the ends (4 bytes each) of variable-length values; 0 otherwise
//
// All numbers are little-endian and have 4 bytes unless noted otherwise.
const (
	headSize   = 80
	columnSize = 24
)

// A layout is the storage layout of a column's values.
type layout uint8

const (
	integers layout = 1 // 8 bytes per row
	floats   layout = 2 // 8 bytes per row
	texts    layout = 3 // bytes back to back, with their ends
)

func layoutOf(t event.Type) layout {
	switch t {
	case event.Bool, event.Int32, event.Int64, event.Timestamp, event.TimestampNS:
		return integers
	case event.Float64:
		return floats
	case event.Decimal, event.String, event.JSON, event.Bytes:
		return texts
	}
	return 0
}

// The trailer of a record identifies its place. Append fills it in once the place is known.
//
//	 0 offset in the file where the commit begins (8)
//	 8 offset of the frame (8)
//	16 CRC-32C of the record before the trailer
//	20 zeros
//	24 key of the file (8)
const trailerSize = 32

// AppendEntry appends the frame of an entry to to, whose length must be a multiple of 8. It
// panics if the lengths in the entry are inconsistent. It copies and checksums the entry in
// the calling goroutine, which leaves little work for the single committing goroutine.
func AppendEntry(to []byte, e *Entry) []byte {
	rows, columns := 0, 0
	if e.Columns != nil {
		rows, columns = e.Columns.Rows, len(e.Columns.Vectors)
	}
	e.check()
	begin := len(to)
	w := writer{out: frame.Begin(slices.Grow(to, e.sizeAtMost())), start: begin + frame.PrefixSize}
	head := w.reserve(headSize)
	table := w.reserve(columns * columnSize)
	names := w.align()
	w.out = append(append(w.out, e.Pipeline...), e.Partition...)
	fingerprints := uint32(0)
	if len(e.Range.Fingerprints) > 0 {
		fingerprints = w.align()
		w.out = append(w.out, bytesOf(e.Range.Fingerprints)...)
	}
	for i := range columns {
		w.appendColumn(table+i*columnSize, e.IDs[i], e.Columns.Spec[i].Type, &e.Columns.Vectors[i])
	}
	w.align()

	h := w.out[head:]
	h[0] = byte(e.Kind)
	binary.LittleEndian.PutUint32(h[4:], e.Table)
	binary.LittleEndian.PutUint64(h[8:], e.Schema)
	binary.LittleEndian.PutUint32(h[16:], uint32(rows))
	binary.LittleEndian.PutUint32(h[20:], uint32(columns))
	binary.LittleEndian.PutUint64(h[24:], uint64(e.MinTime))
	binary.LittleEndian.PutUint64(h[32:], uint64(e.MaxTime))
	binary.LittleEndian.PutUint64(h[40:], e.Range.First)
	binary.LittleEndian.PutUint64(h[48:], e.Range.Count)
	binary.LittleEndian.PutUint64(h[56:], uint64(e.Appended))
	binary.LittleEndian.PutUint32(h[64:], uint32(len(e.Pipeline)))
	binary.LittleEndian.PutUint32(h[68:], uint32(len(e.Partition)))
	binary.LittleEndian.PutUint32(h[72:], names)
	binary.LittleEndian.PutUint32(h[76:], fingerprints)
	return finishRecord(w.out, begin)
}

// check panics if the lengths in the entry are inconsistent, because a durable but unreadable
// frame would be worse.
func (e *Entry) check() {
	if n := len(e.Range.Fingerprints); n != 0 && uint64(n) != e.Range.Count {
		panic(fmt.Sprintf("wal: %d fingerprints for the range %v", n, e.Range))
	}
	c := e.Columns
	if c == nil {
		return
	}
	if len(e.IDs) != len(c.Vectors) || len(c.Spec) != len(c.Vectors) {
		panic(fmt.Sprintf("wal: %d columns, %d of them described, with %d ids", len(c.Vectors), len(c.Spec), len(e.IDs)))
	}
	for i := range c.Vectors {
		v := &c.Vectors[i]
		values := len(v.Ints)
		l := layoutOf(c.Spec[i].Type)
		switch l {
		case floats:
			values = len(v.Floats)
		case texts:
			values = len(v.Ends)
		}
		whole := l != texts || validEnds(v.Ends, len(v.Bytes))
		if l == 0 || values != c.Rows || !whole || len(v.Null) != 0 && len(v.Null) != c.Rows {
			panic(fmt.Sprintf("wal: column %d (%v) has %d values and %d null bytes for %d rows", e.IDs[i], c.Spec[i].Type, values, len(v.Null), c.Rows))
		}
	}
}

// validEnds reports whether ends are valid for values of size bytes in total.
func validEnds(ends []uint32, size int) bool {
	before := uint32(0)
	for _, end := range ends {
		if end < before {
			return false
		}
		before = end
	}
	return int(before) == size
}

// sizeAtMost returns an upper bound of the frame's size in bytes.
func (e *Entry) sizeAtMost() int {
	const padding = 8
	size := frame.PrefixSize + headSize + len(e.Pipeline) + len(e.Partition) + 4*len(e.Range.Fingerprints) + trailerSize + 3*padding
	if e.Columns == nil {
		return size
	}
	for i := range e.Columns.Vectors {
		v := &e.Columns.Vectors[i]
		size += columnSize + len(v.Null) + 8*len(v.Ints) + 8*len(v.Floats) + 4*len(v.Ends) + len(v.Bytes) + 3*padding
	}
	return size
}

// finishRecord appends an empty trailer to the record of the frame at begin and writes the
// frame's length. A record that is too long gets length 0, which Append rejects.
func finishRecord(out []byte, begin int) []byte {
	record := out[begin+frame.PrefixSize:]
	length, checksum := len(record)+trailerSize, frame.Checksum(0, record)
	if length > frame.RecordMax {
		length = 0
	}
	out = append(out, make([]byte, trailerSize)...)
	binary.LittleEndian.PutUint32(out[len(out)-trailerSize+16:], checksum)
	frame.PutPrefix(out[begin:], length, 0)
	return out
}

// A trailer is the decoded end of a record.
type trailer struct {
	commit, offset int64
	key            uint64
}

// stamp fills in the trailer of a frame and the checksum of its prefix. It may be called
// again after a failed write.
func stamp(f []byte, t trailer) {
	record := f[frame.PrefixSize:]
	end := record[len(record)-trailerSize:]
	binary.LittleEndian.PutUint64(end, uint64(t.commit))
	binary.LittleEndian.PutUint64(end[8:], uint64(t.offset))
	binary.LittleEndian.PutUint64(end[24:], t.key)
	frame.PutPrefix(f, len(record), frame.Checksum(binary.LittleEndian.Uint32(end[16:]), end))
}

func parseTrailer(record []byte) trailer {
	end := record[len(record)-trailerSize:]
	return trailer{
		commit: int64(binary.LittleEndian.Uint64(end)),
		offset: int64(binary.LittleEndian.Uint64(end[8:])),
		key:    binary.LittleEndian.Uint64(end[24:]),
	}
}

// A writer appends a record to out.
type writer struct {
	out   []byte
	start int // of the record
}

// reserve appends n zeros and returns the index of the first.
func (w *writer) reserve(n int) (index int) {
	index = len(w.out)
	w.out = slices.Grow(w.out, n)[:index+n]
	clear(w.out[index:])
	return index
}

// align appends zeros up to a multiple of 8 and returns the offset after them.
func (w *writer) align() (offset uint32) {
	w.reserve(-(len(w.out) - w.start) & 7)
	return uint32(len(w.out) - w.start)
}

// appendColumn appends the arrays of a column and writes their description at index.
func (w *writer) appendColumn(index int, id int32, t event.Type, v *event.Vector) {
	var nulls, values, ends uint32
	if bytes.IndexByte(v.Null, 1) >= 0 {
		nulls = w.align()
		w.out = append(w.out, v.Null...)
	}
	content := v.Bytes
	switch layoutOf(t) {
	case integers:
		content = bytesOf(v.Ints)
	case floats:
		content = bytesOf(v.Floats)
	case texts:
		ends = w.align()
		w.out = append(w.out, bytesOf(v.Ends)...)
	}
	values = w.align()
	w.out = append(w.out, content...)

	d := w.out[index:]
	binary.LittleEndian.PutUint32(d, uint32(id))
	d[4], d[5] = byte(t), byte(layoutOf(t))
	binary.LittleEndian.PutUint32(d[8:], nulls)
	binary.LittleEndian.PutUint32(d[12:], values)
	binary.LittleEndian.PutUint32(d[16:], uint32(len(content)))
	binary.LittleEndian.PutUint32(d[20:], ends)
}

var errRecord = errors.New("a record contradicts itself")

// Decode decodes an entry from the record of a frame. The entry shares memory with the record
// and reuses the columns of e. Decode rejects a record with inconsistent lengths; it does not
// verify checksums.
func (e *Entry) Decode(record []byte) error {
	if len(record) < headSize+trailerSize || len(record)%8 != 0 {
		return errRecord
	}
	content := record[:len(record)-trailerSize]
	columns := e.Columns
	*e = Entry{
		Kind:     Kind(content[0]),
		Table:    binary.LittleEndian.Uint32(content[4:]),
		Schema:   binary.LittleEndian.Uint64(content[8:]),
		Pipeline: e.Pipeline, Partition: e.Partition, // often unchanged
		Range:    event.Range{First: binary.LittleEndian.Uint64(content[40:]), Count: binary.LittleEndian.Uint64(content[48:])},
		MinTime:  int64(binary.LittleEndian.Uint64(content[24:])),
		MaxTime:  int64(binary.LittleEndian.Uint64(content[32:])),
		Appended: int64(binary.LittleEndian.Uint64(content[56:])),
		IDs:      e.IDs[:0],
		Columns:  columns,
	}
	if columns == nil {
		e.Columns = new(event.Columns)
	}
	return e.decodeArrays(content)
}

func (e *Entry) decodeArrays(content []byte) error {
	number := func(at int) int { return int(binary.LittleEndian.Uint32(content[at:])) }
	rows, columns := number(16), number(20)
	pipeline, partition := number(64), number(68)
	names, ok := part(content, number(72), pipeline+partition, 1)
	if !ok || columns > (len(content)-headSize)/columnSize {
		return errRecord
	}
	if string(names[:pipeline]) != e.Pipeline {
		e.Pipeline = string(names[:pipeline])
	}
	if string(names[pipeline:]) != e.Partition {
		e.Partition = string(names[pipeline:])
	}
	if at := number(76); at != 0 {
		if e.Range.Count > uint64(len(content)) {
			return errRecord
		}
		fingerprints, ok := part(content, at, int(e.Range.Count), 4)
		if !ok {
			return errRecord
		}
		e.Range.Fingerprints = viewOf[uint32](fingerprints)
	}
	c := e.Columns
	c.Rows = rows
	c.Spec = slices.Grow(c.Spec[:0], columns)[:columns]
	c.Vectors = slices.Grow(c.Vectors[:0], columns)[:columns]
	for i := range columns {
		d := content[headSize+i*columnSize:][:columnSize]
		e.IDs = append(e.IDs, int32(binary.LittleEndian.Uint32(d)))
		c.Spec[i] = event.Column{Type: event.Type(d[4])}
		if !decodeColumn(content, d, rows, &c.Vectors[i]) {
			return errRecord
		}
	}
	return nil
}

// A Record is the record of an entry that Decode has accepted. It gives access to single
// columns without the memory of a decoded entry.
type Record []byte

// Column returns the column with an ID. It shares memory with the record.
func (r Record) Column(id int32) (t event.Type, v event.Vector, found bool) {
	for i := range r.columns() {
		if d := r.column(i); int32(binary.LittleEndian.Uint32(d)) == id {
			return event.Type(d[4]), r.vector(d), true
		}
	}
	return 0, event.Vector{}, false
}

// Vectors yields the values of each column. They share memory with the record.
func (r Record) Vectors() iter.Seq[event.Vector] {
	return func(yield func(event.Vector) bool) {
		for i := range r.columns() {
			if !yield(r.vector(r.column(i))) {
				return
			}
		}
	}
}

func (r Record) columns() int        { return int(binary.LittleEndian.Uint32(r[20:])) }
func (r Record) column(i int) []byte { return r[headSize+i*columnSize:][:columnSize] }

func (r Record) vector(d []byte) (v event.Vector) {
	locateColumn([]byte(r[:len(r)-trailerSize]), d, int(binary.LittleEndian.Uint32(r[16:])), &v)
	return v
}

// decodeColumn decodes the column described by d.
func decodeColumn(content, d []byte, rows int, v *event.Vector) (ok bool) {
	return locateColumn(content, d, rows, v) && validEnds(v.Ends, len(v.Bytes))
}

// locateColumn is decodeColumn without the check of the values' ends, which reads all of them.
func locateColumn(content, d []byte, rows int, v *event.Vector) (ok bool) {
	number := func(at int) int { return int(binary.LittleEndian.Uint32(d[at:])) }
	*v = event.Vector{}
	if at := number(8); at != 0 {
		if v.Null, ok = part(content, at, rows, 1); !ok {
			return false
		}
	}
	values, ok := part(content, number(12), number(16), 1)
	if !ok {
		return false
	}
	switch l := layout(d[5]); {
	case l == 0 || l != layoutOf(event.Type(d[4])):
		return false
	case l == texts:
		ends, ok := part(content, number(20), rows, 4)
		if !ok {
			return false
		}
		v.Bytes, v.Ends = values, viewOf[uint32](ends)
	case len(values) != 8*rows:
		return false
	case l == floats:
		v.Floats = viewOf[float64](values)
	default:
		v.Ints = viewOf[int64](values)
	}
	return true
}

// part returns n values of size bytes each at an offset, which must be after the head.
func part(content []byte, offset, n, size int) (values []byte, ok bool) {
	if offset < headSize || offset%8 != 0 || n > (len(content)-offset)/size {
		return nil, false
	}
	return content[offset : offset+n*size : offset+n*size], true
}
