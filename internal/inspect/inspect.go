// Package inspect describes events: their fields with types, ranges of values and examples, which
// fields look like the time or the name of the event, and what is odd. One pass over the events
// takes a few hundred nanoseconds a value, and memory is bounded: by the number of fields, and for
// each field by the length and number of the values that are kept.
//
// An Inspector has one owner at a time. A Report is a value that nothing changes.
package inspect

import (
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/source/format"
)

// Bounds of what an Inspector keeps.
const (
	fieldsMax     = 1000 // fields; values of further ones are counted
	keyBytesMax   = 128  // a field with a longer key counts as one too many
	depthMax      = 16   // objects and arrays in each other; deeper ones are not looked into
	textBytesMax  = 64   // of a least, greatest or example value
	commonMax     = 32   // different texts of a field whose occurrences are counted
	examplesMax   = 3
	rejectionsMax = 5
)

// An Inspector collects what a Report says.
type Inspector struct {
	doc        pure.Document
	root       field
	fields     int
	events     uint64
	rejected   uint64
	rejections []Rejection
	omitted    uint64
}

// A Rejection is an event that is not a JSON object.
type Rejection struct {
	Event  uint64 `json:"event"` // number of the event, from 1
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
}

// New returns an Inspector that has seen no event.
func New() *Inspector { return &Inspector{} }

// Events returns the number of events so far.
func (x *Inspector) Events() uint64 { return x.events }

// Add inspects an event. It keeps no reference to it.
func (x *Inspector) Add(event []byte) {
	x.events++
	if err := x.doc.Index(event); err != nil {
		if x.rejected++; len(x.rejections) < rejectionsMax {
			x.rejections = append(x.rejections, Rejection{x.events, err.Error(), format.Hint(event)})
		}
		return
	}
	x.addFields(&x.root, x.doc.Whole(), 1)
}

// addFields adds the fields of an object, which is what parent describes.
func (x *Inspector) addFields(parent *field, object pure.Part, depth int) {
	expected := 0 // index of the child that follows the previous one, in most events
	for p, ok := object.First(); ok; p, ok = p.After(object) {
		key := p.Key()
		child := parent.childAt(expected, key)
		if child == nil {
			child = x.child(parent, key)
		}
		if child == nil {
			x.omitted++
			continue
		}
		expected = child.order + 1
		x.addValue(child, p, depth)
	}
}

// child returns a child of a field, which it creates, or nil if there are too many fields.
func (x *Inspector) child(parent *field, key []byte) *field {
	if child := parent.byKey[string(key)]; child != nil {
		return child
	}
	if len(key) > keyBytesMax || x.fields == fieldsMax {
		return nil
	}
	x.fields++
	return parent.addChild(string(key))
}

// addValue adds a value of a field.
func (x *Inspector) addValue(f *field, p pure.Part, depth int) {
	f.count(x.events)
	switch p.Kind() {
	case pure.Null:
		f.kinds[Null]++
	case pure.False, pure.True:
		f.kinds[Bool]++
		f.addPlain(p.Text())
	case pure.Number:
		f.addNumber(p.Text())
	case pure.String:
		f.addText(p.Text())
	case pure.Object:
		f.kinds[Object]++
		if depth < depthMax {
			x.addFields(f, p, depth+1)
		}
	case pure.Array:
		f.kinds[Array]++
		if depth < depthMax && p.Len() > 0 {
			x.addElements(f, p, depth+1)
		}
	}
}

// addElements adds the elements of an array, which are one field for all of them.
func (x *Inspector) addElements(f *field, array pure.Part, depth int) {
	if f.elements == nil {
		if x.fields == fieldsMax {
			x.omitted += uint64(array.Len())
			return
		}
		x.fields++
		f.elements = &field{parent: f, isElements: true}
	}
	for p, ok := array.First(); ok; p, ok = p.After(array) {
		x.addValue(f.elements, p, depth)
	}
}
