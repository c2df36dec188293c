package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A Report describes events.
type Report struct {
	Events     uint64      `json:"events"`
	Rejected   uint64      `json:"rejected"`             // events that are not JSON objects
	Rejections []Rejection `json:"rejections,omitempty"` // the first of them
	Time       string      `json:"time,omitempty"`       // path of the field that most looks like the event's time
	EventName  string      `json:"event_name,omitempty"` // path of the field that most looks like the event's name
	Fields     []Field     `json:"fields"`               // in the order of the events; a field in an object follows the object
	Omitted    uint64      `json:"omitted,omitempty"`    // values of fields beyond the bounds
}

// A Field describes the values of one field, or the elements of one array.
type Field struct {
	Path      string            `json:"path"` // such as user.email, or items[].price
	Type      string            `json:"type"` // a type of columns; or object, array, mixed, or null
	Kinds     map[string]uint64 `json:"kinds"`
	Present   uint64            `json:"present"`         // events with the field
	Null      uint64            `json:"null"`            // values
	Distinct  uint64            `json:"distinct"`        // approximately; of bools, numbers and texts
	Least     string            `json:"least,omitempty"` // of the numbers, or else of the texts, which may be shortened
	Greatest  string            `json:"greatest,omitempty"`
	Longest   int               `json:"longest,omitempty"`    // characters of the longest text
	Examples  []string          `json:"examples,omitempty"`   // the most frequent values if there are few, or else the first
	TimeUnit  string            `json:"time_unit,omitempty"`  // s, ms, us or ns since 1970, or text, if the values look like times
	EventName bool              `json:"event_name,omitempty"` // the values look like names of events
	Odd       []string          `json:"odd,omitempty"`        // what may surprise

	Keys       []string   `json:"-"` // keys from the event to the field; elements have the keys of their array
	InArray    bool       `json:"-"` // the field is in the elements of an array, or is the elements
	Column     event.Type `json:"-"` // type of a column that stores every value
	HasContent bool       `json:"-"` // fields or elements of it follow
}

// Report returns what was collected so far.
func (x *Inspector) Report() *Report {
	r := &Report{Events: x.events, Rejected: x.rejected, Rejections: slices.Clone(x.rejections), Omitted: x.omitted, Fields: []Field{}}
	r.add(&x.root)
	r.Time = best(r.Fields, func(f *Field) int { return timeScore(f, r.Events-r.Rejected) })
	r.EventName = best(r.Fields, func(f *Field) int { return eventScore(f, r.Events-r.Rejected) })
	return r
}

// add adds the fields in f.
func (r *Report) add(f *field) {
	for _, child := range f.children {
		r.Fields = append(r.Fields, child.describe())
		r.add(child)
	}
	if f.elements != nil {
		r.Fields = append(r.Fields, f.elements.describe())
		r.add(f.elements)
	}
}

// best returns the path of the field with the highest score above 0; of equal ones the first.
func best(fields []Field, score func(*Field) int) (path string) {
	highest := 0
	for i := range fields {
		if s := score(&fields[i]); s > highest {
			highest, path = s, fields[i].Path
		}
	}
	return path
}

func (f *field) describe() Field {
	d := Field{
		Path: f.path(), Type: f.typeName(), Column: f.column(), Present: f.events, Null: f.kinds[Null],
		Longest: f.longest, Examples: f.mostFrequent(), Kinds: make(map[string]uint64),
		InArray: f.inArray(), Keys: f.keys(), HasContent: len(f.children) > 0 || f.elements != nil,
	}
	for kind, n := range f.kinds {
		if n > 0 {
			d.Kinds[Kind(kind).String()] = n
		}
	}
	if f.distinct != nil {
		d.Distinct = min(f.distinct.Estimate(), f.values()-f.kinds[Null]-f.kinds[Object]-f.kinds[Array])
	}
	switch {
	case f.numbers() > 0:
		d.Least, d.Greatest = string(f.leastNumber.text), string(f.greatestNumber.text)
	case f.kinds[String] > 0:
		d.Least, d.Greatest = string(f.leastText), string(f.greatestText)
	}
	d.TimeUnit, d.EventName = f.timeUnit(), f.isEventName(d.Distinct)
	d.Odd = f.oddities()
	return d
}

// path joins the keys of a field. A key that a path would split is in brackets and quotes.
func (f *field) path() string {
	switch {
	case f.parent == nil:
		return ""
	case f.isElements:
		return f.parent.path() + "[]"
	}
	before := f.parent.path()
	switch {
	case f.key == "" || strings.ContainsAny(f.key, ".[]\""):
		return fmt.Sprintf("%s[%q]", before, f.key)
	case before == "":
		return f.key
	}
	return before + "." + f.key
}

func (f *field) keys() (keys []string) {
	for ; f.parent != nil; f = f.parent {
		if !f.isElements {
			keys = append(keys, f.key)
		}
	}
	slices.Reverse(keys)
	return keys
}

func (f *field) inArray() bool {
	for ; f.parent != nil; f = f.parent {
		if f.isElements {
			return true
		}
	}
	return false
}

func (f *field) values() (n uint64) {
	for _, count := range f.kinds {
		n += count
	}
	return n
}

func (f *field) numbers() uint64 {
	return f.kinds[Int] + f.kinds[BigInt] + f.kinds[Float] + f.kinds[Decimal]
}

// column returns the type of a column that stores every value of the field without a change.
func (f *field) column() event.Type {
	switch present := f.values() - f.kinds[Null]; present {
	case 0:
		return event.JSON // nothing says what may come
	case f.kinds[Bool]:
		return event.Bool
	case f.kinds[Int]:
		if unit := f.timeUnit(); unit != "" {
			return event.Timestamp
		}
		return event.Int64
	case f.kinds[String]:
		if f.times == present {
			return event.Timestamp
		}
		return event.String
	case f.numbers():
		if f.kinds[BigInt]+f.kinds[Decimal] > 0 || f.kinds[Float] > 0 && f.beyondExact > 0 {
			return event.Decimal
		}
		if f.timeUnit() != "" {
			return event.Timestamp
		}
		return event.Float64
	}
	return event.JSON
}

// typeName is the type of the column, unless the kinds of values say more.
func (f *field) typeName() string {
	switch present := f.values() - f.kinds[Null]; present {
	case 0:
		return "null"
	case f.kinds[Object]:
		return "object"
	case f.kinds[Array]:
		return "array"
	}
	if f.isMixed() {
		return "mixed"
	}
	return f.column().String()
}

// isMixed reports whether the values are of kinds that no column but one of JSON can hold.
func (f *field) isMixed() bool {
	groups := 0
	for _, n := range []uint64{f.kinds[Bool], f.numbers(), f.kinds[String], f.kinds[Object], f.kinds[Array]} {
		if n > 0 {
			groups++
		}
	}
	return groups > 1
}

// mostFrequent returns examples: the most frequent texts if they were counted.
func (f *field) mostFrequent() []string {
	if len(f.common) == 0 || f.kinds[String] != f.values()-f.kinds[Null] {
		return slices.Clone(f.examples)
	}
	texts := slices.Sorted(maps.Keys(f.common))
	slices.SortStableFunc(texts, func(a, b string) int { return int(f.common[b]) - int(f.common[a]) })
	return texts[:min(len(texts), examplesMax)]
}
