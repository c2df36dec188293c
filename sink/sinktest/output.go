package sinktest

import "github.com/perigeedb/perigee/event"

// An OutputBuilder builds an output of typed columns by hand, for a kind's own tests.
type OutputBuilder struct{ out event.Output }

// NewOutputBuilder makes one of partition a, without rows.
func NewOutputBuilder(spec []event.Column) *OutputBuilder {
	return &OutputBuilder{event.Output{Partition: "a", Columns: &event.Columns{Spec: spec, Vectors: make([]event.Vector, len(spec))}}}
}

// Add appends a row that comes from an event of its own. A nil is a null; other
// values are as the column's vector holds them: int64, float64 or string.
func (r *OutputBuilder) Add(values ...any) {
	for c, value := range values {
		v := &r.out.Columns.Vectors[c]
		null := uint8(0)
		if value == nil {
			null = 1
		}
		v.Null = append(v.Null, null)
		switch r.out.Columns.Spec[c].Type {
		case event.Float64:
			f, _ := value.(float64)
			v.Floats = append(v.Floats, f)
		case event.String, event.Decimal, event.JSON:
			s, _ := value.(string)
			v.Bytes = append(v.Bytes, s...)
			v.Ends = append(v.Ends, uint32(len(v.Bytes)))
		default:
			i, _ := value.(int64)
			v.Ints = append(v.Ints, i)
		}
	}
	r.out.Columns.Rows++
	r.out.Range.Count++
	r.out.From = append(r.out.From, uint32(len(r.out.From)))
	r.out.Ends = append(r.out.Ends, 0)
}

// Output returns the output, of positions from first on. It changes with the rows.
func (r *OutputBuilder) Output(first uint64) *event.Output {
	r.out.Range.First = first
	return &r.out
}

// Docs makes an output of partition a with one row per document, each from an event
// of its own, at the positions from first on.
func Docs(first uint64, docs ...string) *event.Output {
	out := &event.Output{Partition: "a", Range: event.Range{First: first, Count: uint64(len(docs))}}
	for i, doc := range docs {
		out.Data = append(out.Data, doc...)
		out.Ends = append(out.Ends, uint32(len(out.Data)))
		out.From = append(out.From, uint32(i))
	}
	return out
}
