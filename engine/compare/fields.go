package compare

import (
	"bytes"

	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
)

// compareRows compares two rows of a sink: the columns, and the fields of the documents.
func (d *differ) compareRows(sink, x, y int) {
	if d.sameRow(sink, x, y) {
		return // the columns come of the documents
	}
	d.walk.begin(sink)
	if d.sinks[sink].Columns != nil {
		d.compareColumns(sink, [2]int{x, y})
	}
	docs := [2][]byte{d.doc(0, sink, x), d.doc(1, sink, y)}
	if d.sinks[sink].ColumnsOnly {
		docs = [2][]byte{d.appendJSONColumns(0, sink, x), d.appendJSONColumns(1, sink, y)}
	}
	for i := range docs {
		if d.docs[i].Index(docs[i]) != nil { // the engine has accepted it
			d.record(key{kind: Changed, sink: sink, stored: true}, sink, "", func(side int) []byte { return docs[side] })
			return
		}
	}
	d.compareObjects(d.docs[0].Whole(), d.docs[1].Whole(), 1)
}

// compareColumns compares the typed values of two rows. Those of type JSON are compared with the
// fields.
func (d *differ) compareColumns(sink int, rows [2]int) {
	columns := d.sinks[sink].Columns
	for i := range columns {
		v, typ := d.cells(sink, i), columns[i].Type
		if typ == event.JSON || sameCell(typ, v, rows) {
			continue
		}
		k := key{kind: Changed, field: shorten([]byte(columns[i].Name), pathBytesMax), sink: allSinks, stored: true}
		switch {
		case v[0].Null[rows[0]] != 0:
			k.kind = Added
		case v[1].Null[rows[1]] != 0:
			k.kind = Removed
		}
		d.walk.markChanged(&columns[i])
		d.record(k, sink, "", func(side int) []byte {
			if v[side].Null[rows[side]] != 0 {
				return nil
			}
			d.text = rowtext.AppendCell(d.text[:0], typ, v[side], rows[side])
			return d.text
		})
	}
}

// cells returns the values of a column of both versions.
func (d *differ) cells(sink, column int) (v [2]*event.Vector) {
	for side := range v {
		v[side] = &d.outcomes[side].result.Outputs[sink].Columns.Vectors[column]
	}
	return v
}

// appendJSONColumns returns a document with the columns of type JSON of a row, by the first keys of their
// paths.
func (d *differ) appendJSONColumns(side, sink, row int) []byte {
	doc := append(d.json[side][:0], '{')
	for i := range d.sinks[sink].Columns {
		c := &d.sinks[sink].Columns[i]
		v := d.cells(sink, i)[side]
		if c.Type != event.JSON || v.Null[row] != 0 {
			continue
		}
		if len(doc) > 1 {
			doc = append(doc, ',')
		}
		doc = append(append(pure.AppendString(doc, firstKey(c)), ':'), v.Text(row)...)
	}
	d.json[side] = append(doc, '}')
	return d.json[side]
}

// sameColumns reports whether columns of all rows have the same values.
func sameColumns(spec []event.Column, a, b *event.Columns) bool {
	for i := range spec {
		for row := range a.Rows {
			if !sameCell(spec[i].Type, [2]*event.Vector{&a.Vectors[i], &b.Vectors[i]}, [2]int{row, row}) {
				return false
			}
		}
	}
	return true
}

// sameCell reports whether two values of a column are equal.
func sameCell(typ event.Type, v [2]*event.Vector, rows [2]int) bool {
	a, b, x, y := v[0], v[1], rows[0], rows[1]
	if a.Null[x] != 0 || b.Null[y] != 0 {
		return a.Null[x] == b.Null[y]
	}
	switch typ {
	case event.Bool, event.Int32, event.Int64, event.Timestamp, event.TimestampNS:
		return a.Ints[x] == b.Ints[y]
	case event.Float64:
		return a.Floats[x] == b.Floats[y]
	case event.Decimal:
		return sameNumber(a.Text(x), b.Text(y))
	}
	return bytes.Equal(a.Text(x), b.Text(y))
}

// sameNumber reports whether two numbers are equal, however they are spelled.
func sameNumber(a, b []byte) bool {
	return bytes.Equal(a, b) || pure.Compare(string(a), string(b)) == 0
}

// A walk is where a comparison of two documents is.
type walk struct {
	sink    int
	path    []byte
	top     string          // first key of the path
	changed map[string]bool // first keys of the columns that differ
}

func (w *walk) begin(sink int) {
	w.sink, w.path, w.top = sink, w.path[:0], ""
	clear(w.changed)
}

func (w *walk) markChanged(c *event.Column) {
	if w.changed == nil {
		w.changed = map[string]bool{}
	}
	w.changed[firstKey(c)] = true
}

// firstKey returns the field of a row that a column is of, or is in.
func firstKey(c *event.Column) string {
	if len(c.Path) > 0 {
		return c.Path[0]
	}
	return c.Name
}

// compareObjects compares the fields of two objects.
func (d *differ) compareObjects(a, b pure.Part, depth int) {
	y, more := b.First()
	x, ok := a.First()
	for ok && more && bytes.Equal(x.Key(), y.Key()) {
		d.compareField(&x, &y, depth)
		x, ok = x.After(a)
		y, more = y.After(b)
	}
	if !ok || !more {
		for ; ok; x, ok = x.After(a) {
			d.compareField(&x, nil, depth)
		}
		for ; more; y, more = y.After(b) {
			d.compareField(nil, &y, depth)
		}
		return
	}
	d.compareByName(x, y, a, b, depth)
}

// compareByName compares the fields of two objects from x and y on, which are in another order.
func (d *differ) compareByName(x, y, a, b pure.Part, depth int) {
	others := map[string]pure.Part{} // of b
	for p, more := y, true; more; p, more = p.After(b) {
		others[string(p.Key())] = p
	}
	for ok := true; ok; x, ok = x.After(a) {
		name := string(x.Key())
		if other, found := others[name]; found {
			delete(others, name)
			d.compareField(&x, &other, depth)
		} else {
			d.compareField(&x, nil, depth)
		}
	}
	for more := true; more; y, more = y.After(b) {
		if _, left := others[string(y.Key())]; left {
			d.compareField(nil, &y, depth)
		}
	}
}

// compareField compares a field of two objects. One of them may lack it.
func (d *differ) compareField(x, y *pure.Part, depth int) {
	if x != nil && y != nil && sameText(*x, *y) {
		return
	}
	named := x
	if x == nil {
		named = y
	}
	w := &d.walk
	length := len(w.path)
	if length > 0 {
		w.path = append(w.path, '.')
	} else {
		w.top = string(named.Key())
	}
	w.path = append(w.path, named.Key()...)
	if x == nil || y == nil {
		d.recordField(x, y)
	} else {
		d.compareValues(*x, *y, depth)
	}
	w.path = w.path[:length]
}

// sameText reports whether two values are spelled alike.
func sameText(x, y pure.Part) bool { return x.Kind() == y.Kind() && bytes.Equal(x.Text(), y.Text()) }

// compareValues compares two values of one path.
func (d *differ) compareValues(x, y pure.Part, depth int) {
	switch {
	case sameText(x, y), x.Kind() == pure.Number && y.Kind() == pure.Number && sameNumber(x.Text(), y.Text()):
	case x.Kind() != y.Kind() || depth == depthMax:
		d.recordField(&x, &y)
	case x.Kind() == pure.Object:
		d.compareObjects(x, y, depth+1)
	case x.Kind() == pure.Array && x.Len() == y.Len():
		d.compareElements(x, y, depth+1)
	default:
		d.recordField(&x, &y)
	}
}

// compareElements compares two arrays of equal length. The path of all elements is one.
func (d *differ) compareElements(a, b pure.Part, depth int) {
	length := len(d.walk.path)
	d.walk.path = append(d.walk.path, "[]"...)
	x, ok := a.First()
	y, _ := b.First()
	for ok {
		d.compareValues(x, y, depth)
		x, ok = x.After(a)
		y, _ = y.After(b)
	}
	d.walk.path = d.walk.path[:length]
}

// kindNames are the types of JSON.
var kindNames = map[pure.Kind]string{
	pure.Null: "null", pure.True: "boolean", pure.False: "boolean", pure.Number: "number", pure.String: "string", pure.Object: "object", pure.Array: "array",
}

// recordField records a difference at the path.
func (d *differ) recordField(x, y *pure.Part) {
	s := &d.sinks[d.walk.sink]
	covered := s.covered[d.walk.top]
	if covered == typed && d.walk.changed[d.walk.top] {
		return // the difference of the column is recorded
	}
	k := key{kind: Changed, field: shorten(d.walk.path, pathBytesMax), sink: allSinks}
	k.stored = s.Columns == nil || covered == asJSON || covered == uncovered && s.Documents
	switch {
	case x == nil:
		k.kind = Added
	case y == nil:
		k.kind = Removed
	case kindNames[x.Kind()] != kindNames[y.Kind()]:
		k.kind, k.detail = TypeChanged, kindNames[x.Kind()]+" → "+kindNames[y.Kind()]
	}
	d.record(k, d.walk.sink, k.detail, func(side int) []byte { return appendPart(d.text[:0], [2]*pure.Part{x, y}[side]) })
}

// appendPart appends a value as JSON, or nothing.
func appendPart(to []byte, p *pure.Part) []byte {
	switch {
	case p == nil:
		return to
	case p.Kind() == pure.String:
		return pure.AppendString(to, string(p.Text()))
	}
	return append(to, p.Text()...)
}
