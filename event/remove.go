package event

// RemoveRows takes rows, ascending, out of the output and its columns, in place.
func (o *Output) RemoveRows(rows []int) {
	if len(rows) == 0 {
		return
	}
	before := o.Len()
	o.Data, o.Ends = without(o.Data, o.Ends, rows)
	o.From, o.To = removed(o.From, rows), removed(o.To, rows)
	if c := o.Columns; c != nil && c.Rows == before {
		for i := range c.Vectors {
			c.Vectors[i].remove(rows)
		}
		c.Rows -= len(rows)
	}
}

func (v *Vector) remove(rows []int) {
	v.Null = removed(v.Null, rows)
	v.Ints = removed(v.Ints, rows)
	v.Floats = removed(v.Floats, rows)
	v.Bytes, v.Ends = without(v.Bytes, v.Ends, rows)
}

// removed closes the gaps that rows leave in s. An empty s has no rows.
func removed[T any](s []T, rows []int) []T {
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

// without is removed for values back to back.
func without(data []byte, ends []uint32, rows []int) ([]byte, []uint32) {
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
