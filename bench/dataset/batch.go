package dataset

import (
	"slices"

	"github.com/perigeedb/perigee/event"
)

// Time returns the time at a position, in microseconds since 1970.
func (e *Events) Time(position uint64) int64 { return e.clock.Time(position) }

// Documents fills out with n events from a position on, as JSON documents.
func (e *Events) Documents(out *event.Output, first uint64, n int) {
	out.Reset()
	out.Range = event.Range{First: first, Count: uint64(n)}
	var times timeWriter
	e.runs(first, n, func(position uint64, row, rows int) {
		begin := len(out.Data)
		out.Data, out.Ends = e.documents.appendTo(out.Data, out.Ends, row, rows)
		for _, end := range out.Ends[len(out.Ends)-rows:] {
			document := out.Data[begin:end]
			putDigits(document[documentID:documentID+idDigits], uint64(ID(position)))
			times.put(document[documentTime:], e.Time(position))
			putHash(document[documentHash:], position)
			begin, position = int(end), position+1
		}
	})
	for i := range n {
		out.From = append(out.From, uint32(i))
	}
}

// Lines appends n events from a position on, as lines with times in microseconds.
func (e *Events) Lines(dst []byte, first uint64, n int) []byte {
	var ends []uint32
	e.runs(first, n, func(position uint64, row, rows int) {
		dst, ends = e.lines.appendTo(dst, ends[:0], row, rows)
		for _, end := range ends {
			putDigits(dst[int(end)-lineTime:][:microsecs], uint64(e.Time(position)))
			putHash(dst[int(end)-lineHash:], position)
			putDigits(dst[int(end)-lineID:][:idDigits], uint64(ID(position)))
			position++
		}
	})
	return dst
}

// Columns fills c with n events from a position on.
func (e *Events) Columns(c *event.Columns, first uint64, n int) {
	if c.Vectors == nil {
		c.Spec, c.Vectors = Columns, make([]event.Vector, len(Columns))
	}
	c.Reset()
	c.Rows = n
	e.runs(first, n, func(position uint64, row, rows int) {
		for i := range c.Vectors {
			to, from := &c.Vectors[i], &e.vectors[i]
			switch Columns[i].Type {
			case event.Float64:
				to.Floats = append(to.Floats, from.Floats[row:row+rows]...)
			case event.String, event.JSON:
				if i != hashColumn {
					to.Bytes, to.Ends = texts{from.Bytes, from.Ends}.appendTo(to.Bytes, to.Ends, row, rows)
				}
			default:
				if len(from.Ints) > 0 {
					to.Ints = append(to.Ints, from.Ints[row:row+rows]...)
				}
			}
		}
	})
	id, times, hash := &c.Vectors[idColumn], &c.Vectors[timeColumn], &c.Vectors[hashColumn]
	for position := first; position < first+uint64(n); position++ {
		id.Ints = append(id.Ints, ID(position))
		times.Ints = append(times.Ints, e.Time(position))
		hash.Bytes = appendHash(hash.Bytes, position)
		hash.Ends = append(hash.Ends, uint32(len(hash.Bytes)))
	}
	for i := range c.Vectors {
		c.Vectors[i].Null = slices.Grow(c.Vectors[i].Null, n)[:n]
	}
}

// runs calls f for each run of distinct rows that the positions fall on.
func (e *Events) runs(first uint64, n int, f func(position uint64, row, rows int)) {
	for n > 0 {
		row := int(first % uint64(e.rows))
		rows := min(n, e.rows-row)
		f(first, row, rows)
		first, n = first+uint64(rows), n-rows
	}
}

// appendTo appends the texts of some rows.
func (t texts) appendTo(bytes []byte, ends []uint32, row, rows int) ([]byte, []uint32) {
	begin := uint32(0)
	if row > 0 {
		begin = t.ends[row-1]
	}
	shift := uint32(len(bytes)) - begin
	for _, end := range t.ends[row : row+rows] {
		ends = append(ends, end+shift)
	}
	return append(bytes, t.bytes[begin:t.ends[row+rows-1]]...), ends
}
