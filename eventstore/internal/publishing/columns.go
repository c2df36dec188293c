package publishing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// columnsOf returns the lake's columns of a table: those that it has, and new ones for the new
// columns of the table. It returns an error if a column no longer has the type that it has in
// the lake, where types never change.
func columnsOf(t *manifest.Table) ([]manifest.LakeColumn, error) {
	columns := slices.Clone(t.Lake.Columns)
	add := func(id int32, name string, kind lake.Type) error {
		for _, known := range columns {
			if known.ID == id && known.Type != string(kind) {
				return typeError(known.Name, kind, lake.Type(known.Type))
			}
			if known.ID == id {
				return nil
			}
		}
		for slices.ContainsFunc(columns, func(other manifest.LakeColumn) bool { return strings.EqualFold(other.Name, name) }) {
			name += "_"
		}
		columns = append(columns, manifest.LakeColumn{ID: id, Name: name, Type: string(kind)})
		return nil
	}
	for _, c := range t.Current().Columns {
		var err error
		switch kind := typeOf(&c); {
		case c.Type == 0:
		case c.Type == event.TimestampNS: // before its nanoseconds, whose name it may change
			if err = add(manifest.MicrosID(c.ID), c.Name, lake.Timestamptz); err == nil {
				err = add(c.ID, c.Name+"_ns", lake.Long)
			}
		default:
			err = add(c.ID, c.Name, kind)
		}
		if err != nil {
			return nil, err
		}
	}
	// All tables have it, so that a first unknown field does not change the lake table.
	return columns, add(manifest.RestID, catalog.RestColumn, lake.String)
}

// typeError reports a column whose type has changed since the table was first published.
func typeError(column string, have, inLake lake.Type) error {
	return &event.PermanentError{
		Err:  fmt.Errorf("column %s has become %s, but it is %s in the lake, where types never change", column, have, inLake),
		Hint: "give the table another name in the lake (lake.table): it is then published again, with the present types",
	}
}

// isReady reports whether the columns of a file have the types of the table's newest schema,
// and the file can be read by other engines.
func isReady(t *manifest.Table, f *manifest.File) bool {
	written := t.Schema(f.Schema)
	return f.Open && !f.Undivided && !slices.ContainsFunc(t.Current().Columns, func(c manifest.Column) bool {
		had := written.ByID(c.ID)
		return had != nil && had.Type != 0 && had.SQLType() != c.SQLType()
	})
}

// NeedsRewrite reports whether a file must be written again before it can be published.
func NeedsRewrite(t *manifest.Table, f *manifest.File) bool {
	return t.Lake != nil && f.Step == 0 && !f.Undivided && (len(f.Replaces) == 0 || f.Changed) && !isReady(t, f)
}

// typeOf returns the type of a column in a lake.
func typeOf(c *manifest.Column) lake.Type {
	switch c.SQLType() {
	case "BOOLEAN":
		return lake.Boolean
	case "INTEGER":
		return lake.Int
	case "BIGINT", "TIMESTAMP_NS":
		return lake.Long
	case "DOUBLE":
		return lake.Double
	case "TIMESTAMP":
		return lake.Timestamptz
	case "BLOB":
		return lake.Binary
	}
	if kind, found := strings.CutPrefix(c.SQLType(), "DECIMAL"); found {
		return lake.Type("decimal" + kind)
	}
	return lake.String // also JSON
}
