// Package systemtable describes tables of SQL whose rows are made when a query reads them, such as
// perigee.segments. Its functions are safe for concurrent use.
package systemtable

import (
	"iter"
	"reflect"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/statement"
)

// Schema is the schema of system tables.
const Schema = statement.SystemSchema

// A Table is a virtual table whose rows are generated when a query reads it. Its SQL name is
// perigee.NAME, and also NAME unless the store has a table of that name.
type Table struct {
	Name    string
	Doc     string
	Columns []Column
	// Rows yields values that encode as JSON objects, keyed by column. It is called once
	// per query and must be safe for concurrent use.
	Rows func() iter.Seq2[any, error]
}

// A Column is a column of a system table. Type is its SQL type.
type Column struct{ Name, Type, Doc string }

// Columns derives columns from a struct's fields: the name from the JSON key, the SQL type from
// the tag sql, the description from the tag doc.
func Columns(row any) (columns []Column) {
	t := reflect.TypeOf(row)
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		columns = append(columns, Column{name, tag.Get("sql"), tag.Get("doc")})
	}
	return columns
}

// IsNamed reports whether a statement may read the named table. It looks for the name as a
// word anywhere in the SQL.
func IsNamed(sql, name string) bool {
	for word := range strings.FieldsFuncSeq(strings.ToLower(sql), func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r < 0x80
	}) {
		if word == strings.ToLower(name) {
			return true
		}
	}
	return false
}
