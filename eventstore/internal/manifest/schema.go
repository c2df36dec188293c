package manifest

import (
	"github.com/perigeedb/perigee/event"
)

// RestID is the ID of catalog.RestColumn in every table.
const RestID = 1

// A Schema is one version of a table's columns.
type Schema struct {
	Version uint64   `json:"version"`
	Columns []Column `json:"columns"`
	Rest    bool     `json:"rest,omitempty"` // some fields have no column; the table has a column _rest
}

// A Column is a column of a table.
type Column struct {
	// ID is stable when the column's type changes. IDs are never reused in a table.
	ID       int32        `json:"id"`
	Name     string       `json:"name"`
	Path     []string     `json:"path"`            // keys from the document's root to the field
	Type     event.Type   `json:"type,omitempty"`  // 0 while all values are null
	Unit     event.Unit   `json:"unit,omitzero"`   // of a timestamp
	Digits   event.Digits `json:"digits,omitzero"` // of a decimal
	Required bool         `json:"required,omitempty"`
	Declared bool         `json:"declared,omitempty"` // reject values that do not fit, instead of widening the column
	// Wide reports that an int64 column has integers that a double cannot represent
	// exactly, so the column must not become a double.
	Wide bool `json:"wide,omitempty"`
}

// SQLType returns the column's SQL type. A decimal without digits is JSON, which preserves
// its text.
func (c *Column) SQLType() string {
	switch c.Type {
	case event.Bool:
		return "BOOLEAN"
	case event.Int32:
		return "INTEGER"
	case event.Int64:
		return "BIGINT"
	case event.Float64:
		return "DOUBLE"
	case event.String:
		return "VARCHAR"
	case event.Timestamp:
		return "TIMESTAMP"
	case event.TimestampNS:
		return "TIMESTAMP_NS"
	case event.Bytes:
		return "BLOB"
	case event.Decimal:
		if c.Digits != (event.Digits{}) {
			return "DECIMAL" + c.Digits.String()
		}
	}
	return "JSON"
}

// ByID returns the column with the given ID, or nil.
func (s *Schema) ByID(id int32) *Column {
	for i := range s.Columns {
		if s.Columns[i].ID == id {
			return &s.Columns[i]
		}
	}
	return nil
}
