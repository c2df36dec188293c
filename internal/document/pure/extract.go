package pure

import (
	"math"
	"slices"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/report"
)

// An Extractor fills typed columns from documents. One goroutine at a time may use it.
type Extractor struct {
	spec          []event.Column
	known         map[string]bool // first keys of the paths
	reportUnknown bool
	doc           Document
}

// NewExtractor compiles spec. Its paths must not be empty.
func NewExtractor(spec []event.Column) *Extractor {
	x := &Extractor{spec: spec, known: map[string]bool{}}
	for _, column := range spec {
		x.known[column.Path[0]] = true
	}
	return x
}

// ReportUnknown makes Extract also report the fields that the spec does not name.
func (x *Extractor) ReportUnknown() { x.reportUnknown = true }

// Extract adds a row to cols for each document. Existing rows of cols must have the same spec.
// Values that do not fit their column become null and are reported. The error is always nil.
func (x *Extractor) Extract(data []byte, ends []uint32, cols *event.Columns) (report.Report, error) {
	x.prepare(cols)
	first := cols.Rows
	cols.Rows += len(ends)
	r := report.Report{}
	from := uint32(0)
	for i, end := range ends {
		x.row(first+i, data[from:end], cols, &r)
		from = end
	}
	return r, nil
}

// prepare gives columns without rows their spec.
func (x *Extractor) prepare(cols *event.Columns) {
	if cols.Rows > 0 {
		return
	}
	cols.Spec = x.spec
	if len(cols.Vectors) != len(x.spec) {
		cols.Vectors = make([]event.Vector, len(x.spec))
	}
	cols.Reset()
}

func (x *Extractor) row(row int, doc []byte, cols *event.Columns, r *report.Report) {
	err := x.doc.Index(doc)
	if err != nil {
		r.Rejected = append(r.Rejected, report.Rejected{Row: row, Column: -1, Reason: err.Error()})
	} else if x.reportUnknown {
		x.unknown(r)
	}
	for i, column := range x.spec {
		n := -1
		if err == nil {
			n = x.doc.path(column.Path)
		}
		misfit := x.cell(&cols.Vectors[i], column, n)
		if misfit == 0 || err != nil {
			continue
		}
		bad := report.Rejected{Row: row, Column: i}
		if n >= 0 {
			bad.Kind = x.doc.kind(n)
			bad.Value = report.Clip(x.doc.spelled(n))
		}
		bad.Reason = misfit.Column(column, bad.Value)
		r.Rejected = append(r.Rejected, bad)
	}
}

// unknown reports the fields that are not the first key of a column's path.
func (x *Extractor) unknown(r *report.Report) {
	for i := 1; i < x.doc.node[0].next; i = x.doc.node[i].next {
		key := x.doc.key(i)
		if x.known[key] {
			continue
		}
		at := slices.IndexFunc(r.Unknown, func(f report.Field) bool { return f.Name == key })
		if at < 0 {
			at = len(r.Unknown)
			r.Unknown = append(r.Unknown, report.Field{Name: key})
		}
		r.Unknown[at].Kinds |= x.doc.kind(i)
	}
}

// path returns the node at a path, or -1.
func (d *Document) path(keys []string) int {
	at := 0
	for _, key := range keys {
		if at = d.child(at, key); at < 0 {
			return -1
		}
	}
	return at
}

// child returns the last field with a key, or -1.
func (d *Document) child(object int, key string) int {
	found := -1
	if d.node[object].kind != Object {
		return -1
	}
	for i := object + 1; i < d.node[object].next; i = d.node[i].next {
		n := &d.node[i]
		if raw := d.text[n.key[0]:n.key[1]]; string(raw) == key && !n.keyEscaped || n.keyEscaped && d.key(i) == key {
			found = i
		}
	}
	return found
}

func (d *Document) spelled(i int) []byte { return d.text[d.node[i].start:d.node[i].end] }

func (d *Document) kind(i int) report.Kind {
	switch d.node[i].kind {
	case Null:
		return report.Null
	case False, True:
		return report.Bool
	case String:
		return report.String
	case Object:
		return report.Object
	case Array:
		return report.Array
	}
	switch _, ok, whole := Int64(string(d.spelled(i))); {
	case ok:
		return report.Int
	case whole:
		return report.BigInt
	}
	return report.Float
}

// A cell is a value in the form of a Vector.
type cell struct {
	null  uint8
	i     int64
	f     float64
	bytes []byte
}

// cell appends the value of node n, or null if n is -1 or the value does not fit.
func (x *Extractor) cell(v *event.Vector, column event.Column, n int) report.Misfit {
	c, misfit := cell{null: 1}, report.Misfit(0)
	switch {
	case n >= 0 && x.doc.node[n].kind != Null:
		if c, misfit = x.doc.convert(n, column); misfit != 0 {
			c = cell{null: 1}
		}
	case column.Required:
		misfit = report.Missing
	}
	v.Null = append(v.Null, c.null)
	switch column.Type {
	case event.Float64:
		v.Floats = append(v.Floats, c.f)
	case event.Decimal, event.String, event.JSON:
		v.Bytes = append(v.Bytes, c.bytes...)
		v.Ends = append(v.Ends, uint32(len(v.Bytes)))
	default:
		v.Ints = append(v.Ints, c.i)
	}
	return misfit
}

// convert converts node i to a value of a column.
func (d *Document) convert(i int, c event.Column) (cell, report.Misfit) {
	n, text, t := &d.node[i], d.spelled(i), c.Type
	if t == event.JSON {
		return cell{bytes: text}, 0
	}
	switch {
	case n.kind == True && t == event.Bool:
		return cell{i: 1}, 0
	case n.kind == False && t == event.Bool:
		return cell{}, 0
	case n.kind == Number:
		return number(string(text), c)
	case n.kind == String && t == event.String:
		return cell{bytes: []byte(plainText(text[1:len(text)-1], n.escaped))}, 0
	case n.kind == String && (t == event.Timestamp || t == event.TimestampNS):
		return clock(plainText(text[1:len(text)-1], n.escaped), t)
	}
	return cell{}, report.Mistyped
}

func number(text string, c event.Column) (cell, report.Misfit) {
	switch t := c.Type; t {
	case event.Int32, event.Int64:
		v, ok, whole := Int64(text)
		switch {
		case !whole:
			return cell{}, report.Fractional
		case !ok || t == event.Int32 && v != int64(int32(v)):
			return cell{}, report.OutOfRange
		}
		return cell{i: v}, 0
	case event.Float64:
		f, _ := strconv.ParseFloat(text, 64)
		if math.IsInf(f, 0) {
			return cell{}, report.OutOfRange
		}
		return cell{f: f}, 0
	case event.Decimal:
		return cell{bytes: []byte(text)}, 0
	case event.Timestamp, event.TimestampNS:
		return timeNumber(text, c)
	}
	return cell{}, report.Mistyped
}
