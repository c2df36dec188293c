// Package table holds what sinks that fill a table have in common: how columns
// are configured, and how values are judged and shown. What depends on the kind
// of database stays with the sink.
//
// Everything here is a value or a function of its arguments, safe for
// concurrent use.
package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A Column says which field of a document becomes a column, and as what.
type Column struct {
	Name     string `yaml:"name,required" help:"of the column"`
	Type     Type   `yaml:"type,required" help:"bool, int32, int64, float64, decimal, string, timestamp or json"`
	Field    string `yaml:"field" help:"where the value is in the document, as a.b.c (the column's name)"`
	Required bool   `yaml:"required" help:"refuse events without a value; a table that is made says NOT NULL"`
	SQL      string `yaml:"sql" help:"type of the column in a table that is made, such as VARCHAR(100)"`
}

// A Type is an event.Type by its name.
type Type event.Type

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Type) UnmarshalText(text []byte) error {
	known, ok := event.ParseType(string(text))
	if !ok {
		return fmt.Errorf("unknown type %q; known: %s", text, strings.Join(event.TypeNames(), ", "))
	}
	*t = Type(known)
	return nil
}

// A Secret is text that is never printed.
type Secret string

func (Secret) String() string   { return "(hidden)" }
func (Secret) GoString() string { return "(hidden)" }

// Naming is what a kind of database takes for a name.
type Naming struct {
	Check func(name string) error // refuses what cannot be the name of a table or a column
	Same  func(a, b string) bool  // tells whether two names are those of one column
}

// CheckColumns finds what is wrong with columns without asking a server.
func (n Naming) CheckColumns(columns []Column) error {
	if len(columns) == 0 {
		return errors.New("columns is empty: name at least one column to fill")
	}
	for i, column := range columns {
		if err := n.Check(column.Name); err != nil {
			return fmt.Errorf("item %d of columns: name %w", i+1, err)
		}
		same := func(other Column) bool { return n.Same(other.Name, column.Name) }
		if slices.IndexFunc(columns, same) != i {
			return fmt.Errorf("column %q is named twice", column.Name)
		}
		if column.Type == 0 {
			return fmt.Errorf("column %q has no type; known: %s", column.Name, strings.Join(event.TypeNames(), ", "))
		}
		if slices.Contains(column.path(), "") {
			return fmt.Errorf("column %q: field %q has an empty part; write it as a.b.c", column.Name, column.Field)
		}
	}
	return nil
}

// Keys parses indexes: each is names of columns, separated by commas.
func Keys(indexes []string) [][]string {
	var all [][]string
	for _, index := range indexes {
		names := strings.Split(index, ",")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		all = append(all, names)
	}
	return all
}

// CheckKey refuses a key over what is no column, or a column that cannot be part of it.
func CheckKey(key []string, columns []Column, fits func(Column) error) error {
	for _, name := range key {
		i := slices.IndexFunc(columns, func(column Column) bool { return column.Name == name })
		if i < 0 {
			return fmt.Errorf("the key over %s: no column is named %q", strings.Join(key, ", "), name)
		}
		if err := fits(columns[i]); err != nil {
			return fmt.Errorf("the key over %s: %w", strings.Join(key, ", "), err)
		}
	}
	return nil
}

// Spec is what the engine extracts for columns.
func Spec(columns []Column) []event.Column {
	spec := make([]event.Column, 0, len(columns))
	for _, c := range columns {
		spec = append(spec, event.Column{Name: c.Name, Path: c.path(), Type: event.Type(c.Type), Required: c.Required})
	}
	return spec
}

func (c Column) path() []string {
	if c.Field == "" {
		return []string{c.Name}
	}
	return strings.Split(c.Field, ".")
}
