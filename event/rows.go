package event

import "slices"

// RowNumber returns the number of a row among the rows that its event had in
// this output, counted from 0. removed holds the numbers of those rows of the
// event that were removed from the output; they keep their numbers. The rows of
// an event are adjacent.
func (o *Output) RowNumber(row int, removed []uint32) uint32 {
	number := uint32(0)
	for i := row; i > 0 && o.From[i-1] == o.From[row]; i-- {
		number++
	}
	for _, gap := range slices.Compact(slices.Sorted(slices.Values(removed))) {
		if gap <= number {
			number++
		}
	}
	return number
}

// RemoveRows removes rows, given in ascending order, from the output and its
// columns, in place.
func (o *Output) RemoveRows(rows []int) {
	if len(rows) == 0 {
		return
	}
	before := o.Len()
	o.Data, o.Ends = withoutTexts(o.Data, o.Ends, rows)
	o.From, o.To = withoutRows(o.From, rows), withoutRows(o.To, rows)
	if c := o.Columns; c != nil && c.Rows == before {
		for i := range c.Vectors {
			c.Vectors[i].removeRows(rows)
		}
		c.Rows -= len(rows)
	}
}

func (v *Vector) removeRows(rows []int) {
	v.Null = withoutRows(v.Null, rows)
	v.Ints = withoutRows(v.Ints, rows)
	v.Floats = withoutRows(v.Floats, rows)
	v.Bytes, v.Ends = withoutTexts(v.Bytes, v.Ends, rows)
}

// withoutRows returns s without the given rows, in place. An empty s stays empty.
func withoutRows[T any](s []T, rows []int) []T {
	if len(s) == 0 {
		return s
	}
	kept := s[:rows[0]]
	for i, row := range rows {
		next := len(s)
		if i+1 < len(rows) {
			next = rows[i+1]
		}
		kept = append(kept, s[row+1:next]...)
	}
	return kept
}

// withoutTexts is withoutRows for values that lie back to back in data.
func withoutTexts(data []byte, ends []uint32, rows []int) ([]byte, []uint32) {
	kept, keptEnds := data[:0], ends[:0]
	begin := uint32(0)
	for i, end := range ends {
		if len(rows) > 0 && rows[0] == i {
			rows = rows[1:]
		} else {
			kept = append(kept, data[begin:end]...)
			keptEnds = append(keptEnds, uint32(len(kept)))
		}
		begin = end
	}
	return kept, keptEnds
}
