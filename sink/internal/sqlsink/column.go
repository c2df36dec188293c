package sqlsink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A Column maps a field of the documents to a column of the table.
type Column struct {
	Name     string `yaml:"name,required" example:"id" help:"name of the column"`
	Type     Type   `yaml:"type,required" choices:"bool,int32,int64,float64,decimal,string,timestamp,json" example:"int64" help:"bool, int32, int64, float64, decimal, string, timestamp or json"`
	Field    string `yaml:"field" default:"(the column's name)" example:"user.email" help:"path of the value in the document"`
	Required bool   `yaml:"required" help:"reject events without a value; a table that the sink creates says NOT NULL"`
	SQL      string `yaml:"sql" example:"VARCHAR(100)" help:"type of the column in a table that the sink creates"`
}

// A Type is an event.Type that a configuration names.
type Type event.Type

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Type) UnmarshalText(text []byte) error {
	known, ok := event.ParseType(string(text))
	if !ok || !slices.Contains(event.TypeNames(), string(text)) {
		return fmt.Errorf("unknown type %q; known: %s", text, strings.Join(event.TypeNames(), ", "))
	}
	*t = Type(known)
	return nil
}

// A Secret is text that no verb prints.
type Secret string

func (Secret) String() string   { return "(hidden)" }
func (Secret) GoString() string { return "(hidden)" }

// Spec returns the columns that the engine extracts for columns of a table.
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
