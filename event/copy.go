package event

import "sort"

// CopyEvents makes b a copy of n events of another batch, from event first on. They keep their positions,
// but not the fingerprints of their range.
func (b *Batch) CopyEvents(of *Batch, first, n int) {
	b.Reset()
	b.Partition, b.Time = of.Partition, of.Time
	b.Range.First, b.Range.Count = of.Range.First+uint64(first), uint64(n)
	b.Data, b.Ends = appendTexts(b.Data, b.Ends, of.Data, of.Ends, first, first+n)
}

// CopyEvents makes r a copy of what another result has of n events of its batch, from event first on. It
// shares nothing with the other result but the texts of dead letters, which nobody changes. in is the
// batch of the other result.
func (r *Result) CopyEvents(of *Result, in *Batch, first, n int) {
	r.Outputs = append(r.Outputs, make([]Output, max(0, len(of.Outputs)-len(r.Outputs)))...)[:len(of.Outputs)]
	r.Reset()
	r.Ran = n
	seen := make([]bool, n)
	for i := range of.Outputs {
		out := &r.Outputs[i]
		out.copyEvents(&of.Outputs[i], first, n)
		out.Partition, out.Range = in.Partition, Range{First: in.Range.First + uint64(first), Count: uint64(n)}
		for _, from := range out.From {
			seen[from] = true
		}
	}
	begin := in.Range.First + uint64(first)
	for i := range of.Dead {
		if d := &of.Dead[i]; d.Position >= begin && d.Position < begin+uint64(n) {
			r.Dead = append(r.Dead, *d)
			seen[d.Position-begin] = true
		}
	}
	for _, some := range seen {
		if !some {
			r.Dropped++
		}
	}
}

// copyEvents makes o a copy of the rows of n events. o is empty.
func (o *Output) copyEvents(of *Output, first, n int) {
	row := sort.Search(len(of.From), func(i int) bool { return int(of.From[i]) >= first })
	end := row + sort.Search(len(of.From)-row, func(i int) bool { return int(of.From[row+i]) >= first+n })
	o.Data, o.Ends = appendTexts(o.Data, o.Ends, of.Data, of.Ends, row, end)
	for _, from := range of.From[row:end] {
		o.From = append(o.From, from-uint32(first))
	}
	o.To = appendRows(o.To, of.To, row, end)
	if of.Columns == nil {
		o.Columns = nil
		return
	}
	if o.Columns == nil {
		o.Columns = new(Columns)
	}
	o.Columns.appendRows(of.Columns, row, end)
}

// AppendRow appends a row of another output as a row of event from of o's batch. If both have rows,
// they have the same columns.
func (o *Output) AppendRow(of *Output, row int, from uint32) {
	o.Data, o.Ends = appendTexts(o.Data, o.Ends, of.Data, of.Ends, row, row+1)
	o.From = append(o.From, from)
	if of.Columns == nil {
		return
	}
	if o.Columns == nil {
		o.Columns = new(Columns)
	}
	o.Columns.appendRows(of.Columns, row, row+1)
}

// appendRows appends rows of columns with the same spec, unless c is empty.
func (c *Columns) appendRows(of *Columns, first, end int) {
	c.Spec = of.Spec
	c.Rows += end - first
	c.Vectors = append(c.Vectors, make([]Vector, max(0, len(of.Vectors)-len(c.Vectors)))...)[:len(of.Vectors)]
	for i := range c.Vectors {
		v, from := &c.Vectors[i], &of.Vectors[i]
		v.Null = appendRows(v.Null, from.Null, first, end)
		v.Ints = appendRows(v.Ints, from.Ints, first, end)
		v.Floats = appendRows(v.Floats, from.Floats, first, end)
		if len(from.Ends) > 0 {
			v.Bytes, v.Ends = appendTexts(v.Bytes, v.Ends, from.Bytes, from.Ends, first, end)
		}
	}
}

// appendRows appends rows of a slice that may be empty.
func appendRows[T any](to, from []T, first, end int) []T {
	if len(from) == 0 {
		return to
	}
	return append(to, from[first:end]...)
}

// appendTexts appends values that lie back to back in data.
func appendTexts(to []byte, toEnds []uint32, data []byte, ends []uint32, first, end int) ([]byte, []uint32) {
	if first == end {
		return to, toEnds
	}
	begin := start(ends, first)
	shift := len(to) - begin
	for _, e := range ends[first:end] {
		toEnds = append(toEnds, uint32(int(e)+shift))
	}
	return append(to, data[begin:ends[end-1]]...), toEnds
}
