//go:build linux && cgo

package eventstore

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/document"
)

const (
	// columnsMax bounds the number of inferred columns and of declared columns. Further
	// fields are kept in _rest. DuckDB needs two 256 KiB blocks for each column that a
	// thread writes.
	columnsMax = 200
	keyMax     = 256 // maximum bytes of a key that becomes a column
	// exactMax is the largest integer that a double represents unambiguously: no other
	// integer rounds to it.
	exactMax = 1<<53 - 1
)

// A schema is one version of a table's columns. It is immutable; changes create the next
// version.
type schema struct {
	manifest.Schema
	nextColumn int32 // ID of the next column
	unknown    catalog.Unknown
	time       string // name of the time column; "" without one
}

type column = manifest.Column

// newSchema returns an empty schema.
func newSchema() *schema { return &schema{nextColumn: manifest.RestID + 1} }

// schemaOf returns the newest schema that the manifest has of a table.
func schemaOf(t *manifest.Table) *schema {
	return &schema{Schema: *t.Current(), nextColumn: t.NextColumn, unknown: t.Unknown, time: t.Time}
}

// clone returns a copy to become the next version, which the caller may change.
func (s *schema) clone() *schema {
	next := *s
	next.Version, next.Columns = s.Version+1, slices.Clone(s.Columns)
	return &next
}

// addColumn adds a column and assigns it a new ID.
func (s *schema) addColumn(c column) {
	c.ID = s.nextColumn
	s.nextColumn++
	s.Columns = append(s.Columns, c)
}

// find returns the index of the named column, ignoring case as SQL does, or -1.
func (s *schema) find(name string) int {
	return slices.IndexFunc(s.Columns, func(c column) bool { return strings.EqualFold(c.Name, name) })
}

func (s *schema) field(key string) int {
	return slices.IndexFunc(s.Columns, func(c column) bool { return len(c.Path) == 1 && c.Path[0] == key })
}

// declare adds the columns that a configuration declares. For a field inside an object it
// also adds the object as a column, which keeps the object's other fields, unless the table
// drops undeclared fields.
func (s *schema) declare(columns []event.Column) error {
	for _, want := range columns {
		if i := s.find(want.Name); i >= 0 {
			if have := &s.Columns[i]; have.Type != want.Type || have.Digits != want.Digits || !slices.Equal(have.Path, want.Path) {
				return &columnConflict{want, *have}
			}
			s.Columns[i].Required, s.Columns[i].Unit, s.Columns[i].Declared = want.Required, want.Unit, true
			continue
		}
		s.addColumn(column{Name: want.Name, Path: want.Path, Type: want.Type, Unit: want.Unit, Digits: want.Digits, Required: want.Required, Declared: true})
	}
	for _, want := range columns {
		if top := want.Path[0]; s.field(top) < 0 && s.unknown != catalog.DropUnknown {
			s.addColumn(column{Name: s.name(top), Path: []string{top}, Type: event.JSON})
		}
	}
	return nil
}

// canAdd reports whether a field can get a column.
func (s *schema) canAdd(key string) bool {
	return s.unknown == catalog.AddUnknown && len(s.Columns) < columnsMax && len(key) <= keyMax
}

// add creates a column for a field, or records that the field goes to _rest.
func (s *schema) add(key string, kinds document.Kind) {
	if !s.canAdd(key) {
		s.Rest = s.Rest || kinds != document.Null
		return
	}
	s.addColumn(column{Name: s.name(key), Path: []string{key}, Type: widest(0, false, kinds)})
}

// name derives a column name from a key. The name is printable and unique regardless of case.
func (s *schema) name(key string) string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, key)
	if name == "" {
		name = "_"
	}
	for n, base := 2, name; strings.EqualFold(name, catalog.RestColumn) || s.find(name) >= 0; n++ {
		name = base + "_" + strconv.Itoa(n)
	}
	return name
}

// widest returns the narrowest type that holds, without loss, both the values of t and values
// of the given kinds.
func widest(t event.Type, wide bool, kinds document.Kind) event.Type {
	var fits event.Type
	switch kinds &^ document.Null {
	case 0:
		return t
	case document.Bool:
		fits = event.Bool
	case document.Int:
		fits = event.Int64
	case document.Float, document.Float | document.Int:
		fits = event.Float64
	case document.String:
		fits = event.String
	default:
		return event.JSON
	}
	switch {
	case t == 0 || t == fits:
		return fits
	case t == event.Int64 && fits == event.Float64 && !wide, t == event.Float64 && fits == event.Int64:
		return event.Float64
	}
	return event.JSON
}

// grownFor returns a schema version that fits the extractor's report, or s if s fits. spec
// maps the report's columns to those of s.
func (s *schema) grownFor(report document.Report, cols *event.Columns, spec []int) *schema {
	next := s
	grow := func() *schema {
		if next == s {
			next = s.clone()
		}
		return next
	}
	kinds := make([]document.Kind, len(s.Columns))
	for _, bad := range report.Rejected {
		kinds[spec[bad.Column]] |= bad.Kind
	}
	for i, c := range s.Columns {
		if t := widest(c.Type, c.Wide, kinds[i]); t != c.Type {
			grow().Columns[i].Type = t
		}
	}
	for i, c := range spec {
		s.needExact(c, &cols.Vectors[i], grow)
	}
	for _, field := range report.Unknown {
		if i := next.field(field.Name); i < 0 {
			if next.canAdd(field.Name) || field.Kinds != document.Null && !next.Rest {
				grow().add(field.Name, field.Kinds)
			}
		} else if field.Kinds != document.Null {
			grow().Columns[i].Type = widest(0, false, field.Kinds)
		}
	}
	return next
}

// needExact preserves integers that a double cannot represent exactly. It marks an int64
// column once it has such a value, and turns a double column that receives one into JSON.
func (s *schema) needExact(i int, v *event.Vector, grow func() *schema) {
	c := &s.Columns[i]
	switch {
	case c.Declared:
	case c.Type == event.Int64 && !c.Wide:
		if slices.ContainsFunc(v.Ints, func(x int64) bool { return x > exactMax || x < -exactMax }) {
			next := grow()
			next.Columns[i].Wide = true
			if next.Columns[i].Type == event.Float64 {
				next.Columns[i].Type = event.JSON
			}
		}
	case c.Type == event.Float64:
		if slices.ContainsFunc(v.Floats, func(x float64) bool { return math.Abs(x) > exactMax }) {
			grow().Columns[i].Type = event.JSON
		}
	}
}
