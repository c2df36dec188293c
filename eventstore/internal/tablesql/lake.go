package tablesql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// LakeType returns the type of a column in a lake, and whether its values are JSON texts there.
func LakeType(c *manifest.Column) (kind string, isJSON bool) {
	sql := c.SQLType()
	if digits, found := strings.CutPrefix(sql, "DECIMAL"); found {
		return "decimal" + digits, false
	}
	for kind, known := range lakeSQLTypes {
		if known == sql {
			return kind, false
		}
	}
	if c.Type == event.TimestampNS {
		return "long", false
	}
	return "string", sql == "JSON"
}

// lakeSQLTypes are the SQL types with the values of Iceberg's types, besides decimals.
var lakeSQLTypes = map[string]string{
	"boolean": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "binary": "BLOB", "timestamptz": "TIMESTAMP",
}

// lakeSQLType returns the SQL type with the values of a lake column.
func lakeSQLType(c *manifest.LakeColumn) string {
	if digits, found := strings.CutPrefix(c.Type, "decimal"); found {
		return "DECIMAL" + digits
	}
	return lakeSQLTypes[c.Type]
}

// isNanos reports whether a lake column holds nanoseconds as integers, next to a column with the
// microseconds.
func isNanos(all []manifest.LakeColumn, c *manifest.LakeColumn) bool {
	return slices.ContainsFunc(all, func(other manifest.LakeColumn) bool { return other.ID == manifest.MicrosID(c.ID) })
}

// IsNatural reports whether a store column have, stored as it is, has the type of lake column c,
// one of all.
func IsNatural(have *manifest.Column, all []manifest.LakeColumn, c *manifest.LakeColumn) bool {
	if c.ID != have.ID || isNanos(all, c) {
		return have.Type == event.TimestampNS
	}
	kind, isJSON := LakeType(have)
	return have.Type != event.TimestampNS && kind == c.Type && isJSON == c.JSON
}

// A HiddenColumn is a column of files that queries do not see.
type HiddenColumn struct {
	ID   int32 // field ID in files
	Name string
	SQL  string // its value
	// Of is the name of the column whose values it has where they fit the type in the lake;
	// empty for other hidden columns.
	Of string
}

// HiddenColumns returns the columns that files need besides the stored ones, to be read as
// files of a lake: for each column with nanoseconds one with its microseconds, and for each
// column whose lake type differs, a column with the values that fit it, and a _rest with the
// others.
func HiddenColumns(t *manifest.Table) (hidden []HiddenColumn) {
	stored := StoredColumns(t)
	add := func(kind string, h HiddenColumn) {
		h.Name = fmt.Sprintf("#%s %d", kind, h.ID)
		for slices.ContainsFunc(stored, func(other manifest.Column) bool { return strings.EqualFold(other.Name, h.Name) }) {
			h.Name = "#" + h.Name
		}
		hidden = append(hidden, h)
	}
	for _, c := range stored {
		if c.Type == event.TimestampNS {
			add("micros", HiddenColumn{ID: manifest.MicrosID(c.ID), SQL: microsSQL(&c)})
		}
	}
	fitted := FittedColumns(t)
	// While a column is widened, files have its type in the lake before and after the change.
	if next := Widened(t, 1); next != nil {
		fitted = append(fitted, FittedColumns(next)...)
	}
	for _, h := range fitted {
		if !slices.ContainsFunc(hidden, func(other HiddenColumn) bool { return other.ID == h.ID }) {
			add("fitted", h)
		}
	}
	return hidden
}

// FittedColumns returns the hidden columns for lake columns of another type, without names.
func FittedColumns(t *manifest.Table) (fitted []HiddenColumn) {
	stored, all := StoredColumns(t), t.Lake.Ordering()
	rest := manifest.LakeColumn{ID: manifest.RestID}
	var misfits []string
	for i := range all {
		at := slices.IndexFunc(stored, func(c manifest.Column) bool { return c.ID == all[i].Source() })
		if all[i].ID == manifest.RestID {
			rest = all[i]
			continue
		}
		if at < 0 || IsNatural(&stored[at], all, &all[i]) {
			continue
		}
		c := &stored[at]
		h := HiddenColumn{ID: all[i].FittedID(), SQL: "CAST(" + fittedSQL(c, all, &all[i]) + " AS " + lakeSQLType(&all[i]) + ")"}
		if !isNanos(all, &all[i]) {
			h.Of = c.Name
			misfits = append(misfits, fmt.Sprintf("CASE WHEN %s IS NOT NULL AND (%s) IS NULL THEN %s END", sqltext.QuoteName(c.Name), h.SQL, misfitSQL(t, c)))
		}
		fitted = append(fitted, h)
	}
	if len(misfits) > 0 {
		if t.Current().Rest {
			text := "CAST(" + sqltext.QuoteName(catalog.RestColumn) + " AS VARCHAR)"
			misfits = append(misfits, fmt.Sprintf("nullif(substr(%s, 2, length(%[1]s) - 2), '')", text))
		}
		fitted = append(fitted, HiddenColumn{ID: rest.FittedID(), SQL: "'{' || nullif(concat_ws(',', " + strings.Join(misfits, ", ") + "), '') || '}'"})
	}
	return fitted
}

// LakeColumnOf returns the index of the lake column with the values of a column, or -1.
func LakeColumnOf(t *manifest.Table, c *manifest.Column) int {
	micros := slices.IndexFunc(t.Lake.Columns, func(known manifest.LakeColumn) bool { return known.ID == manifest.MicrosID(c.ID) })
	if micros >= 0 {
		return micros
	}
	return slices.IndexFunc(t.Lake.Columns, func(known manifest.LakeColumn) bool { return known.ID == c.ID })
}

// Widened returns the table with the columns that orders use from step on, to widen a column. It
// returns nil if no column is being widened, or if orders use them already.
func Widened(t *manifest.Table, step uint64) *manifest.Table {
	w := t.Lake.Widening
	if w == nil || w.Step > 0 {
		return nil
	}
	c := t.Current().ByID(w.Column)
	if c == nil || c.Type == 0 {
		return nil
	}
	at := LakeColumnOf(t, c)
	to := t.Lake.Columns[at]
	to.Widened++
	to.ID, to.Lake = c.ID, 0
	if to.Type, to.JSON = LakeType(c); c.Type == event.TimestampNS {
		to.ID, to.Type = manifest.MicrosID(c.ID), "timestamptz"
	}
	begun, known, next := *w, *t.Lake, *t
	begun.At, begun.To, begun.Step = at, to, step
	known.Widening, next.Lake = &begun, &known
	return &next
}

// microsSQL returns SQL for the time of a column with nanoseconds, rounded down.
func microsSQL(c *manifest.Column) string {
	return fmt.Sprintf("make_timestamp((%s - (%[1]s %% 1000 + 1000) %% 1000) // 1000)", "epoch_ns("+sqltext.QuoteName(c.Name)+")")
}

// misfitSQL returns SQL for a column's value as a field of _rest. If _rest has a field with the
// name of the column, the name gets a suffix.
func misfitSQL(t *manifest.Table, c *manifest.Column) string {
	key := func(name string) string {
		text, _ := json.Marshal(name)
		return sqltext.Literal(string(text) + ":")
	}
	name, value := key(c.Name), fieldSQL(c)
	if c.Type == event.Float64 {
		value = "coalesce(" + value + ", '\"' || CAST(" + sqltext.QuoteName(c.Name) + " AS VARCHAR) || '\"')"
	}
	if t.Current().Rest {
		name = fmt.Sprintf("if(coalesce(list_contains(json_keys(%s), %s), false), %s, %s)", sqltext.QuoteName(catalog.RestColumn), sqltext.Literal(c.Name), key(c.Name+"_"), name)
	}
	return name + " || " + value
}

const (
	// A double represents every integer up to exactMax.
	exactMax = "9007199254740992"
	// integerPattern matches JSON numbers that are integers in plain notation, but not -0,
	// and numberPattern all JSON numbers.
	integerPattern = `'(0|-?[1-9][0-9]*)(\.0+)?'`
	numberPattern  = `'-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?'`
)

// fittedSQL returns SQL for the value of a column in the type of a lake column, one of all, or
// NULL where it is not exactly the same.
func fittedSQL(c *manifest.Column, all []manifest.LakeColumn, in *manifest.LakeColumn) string {
	name, have := sqltext.QuoteName(c.Name), c.SQLType()
	isTime := c.Type == event.Timestamp || c.Type == event.TimestampNS
	text := "CAST(" + name + " AS VARCHAR)" // of JSON, its source
	switch kind := lakeSQLType(in); {
	case isNanos(all, in) && isTime:
		return "TRY(epoch_us(" + name + ") * 1000)"
	case in.JSON:
		return fieldSQL(c)
	case kind == "VARCHAR" && have == "JSON":
		return "CASE WHEN json_type(" + name + ") = 'VARCHAR' THEN " + name + " ->> '$' END"
	case kind == "VARCHAR" && isTime:
		return "trim(" + fieldSQL(c) + ", '\"')"
	case kind == "TIMESTAMP" && c.Type == event.TimestampNS:
		return "CASE WHEN epoch_ns(" + name + ") % 1000 = 0 THEN " + microsSQL(c) + " END"
	case kind == "TIMESTAMP" && c.Type == event.Timestamp:
		return name
	case kind == "BOOLEAN" && have == "JSON":
		return "CASE " + text + " WHEN 'true' THEN true WHEN 'false' THEN false END"
	case (kind == "BIGINT" || kind == "INTEGER" || kind == "DOUBLE") && isTime:
		number := unitSQL(c)
		if kind == "DOUBLE" {
			return fmt.Sprintf("CASE WHEN abs(%s) <= %s THEN %[1]s END", number, exactMax)
		}
		return "TRY_CAST(" + number + " AS " + kind + ")"
	case (kind == "BIGINT" || kind == "INTEGER") && have == "DOUBLE":
		return fmt.Sprintf("CASE WHEN trunc(%s) = %[1]s AND NOT (%[1]s = 0 AND signbit(%[1]s)) AND abs(%[1]s) < 9223372036854775808 THEN TRY_CAST(%[1]s AS %s) END", name, kind)
	case (kind == "BIGINT" || kind == "INTEGER") && have == "JSON":
		return fmt.Sprintf("CASE WHEN regexp_full_match(%s, %s) THEN TRY_CAST(split_part(%[1]s, '.', 1) AS %[3]s) END", text, integerPattern, kind)
	case kind == "DOUBLE" && have == "JSON":
		return doubleSQL(text)
	case kind == "DOUBLE" && have == "BIGINT":
		return fmt.Sprintf("CASE WHEN %s BETWEEN -%s AND %[2]s THEN %[1]s END", name, exactMax)
	case kind == "BIGINT" && have == "INTEGER", kind == "INTEGER" && have == "BIGINT", kind == "DOUBLE" && have == "INTEGER":
		return "TRY_CAST(" + name + " AS " + kind + ")"
	case have == "VARCHAR" && (kind == "BOOLEAN" || kind == "INTEGER" || kind == "BIGINT" || kind == "DOUBLE"):
		return fmt.Sprintf("CASE WHEN CAST(TRY_CAST(%s AS %s) AS VARCHAR) = %[1]s THEN TRY_CAST(%[1]s AS %[2]s) END", name, kind)
	}
	return "NULL"
}

// unitSQL returns SQL for the number of units of a time, or NULL if it is between two numbers
// or its column has no unit.
func unitSQL(c *manifest.Column) string {
	perSecond, known := map[event.Unit]int64{event.Seconds: 1, event.Milliseconds: 1e3, event.Microseconds: 1e6, event.Nanoseconds: 1e9}[c.Unit]
	if !known {
		return "CAST(NULL AS HUGEINT)"
	}
	number, have := "CAST(epoch_us("+sqltext.QuoteName(c.Name)+") AS HUGEINT)", int64(1e6)
	if c.Type == event.TimestampNS {
		number, have = "CAST(epoch_ns("+sqltext.QuoteName(c.Name)+") AS HUGEINT)", 1e9
	}
	if perSecond >= have {
		return fmt.Sprintf("(%s * %d)", number, perSecond/have)
	}
	return fmt.Sprintf("(CASE WHEN %s %% %d = 0 THEN %[1]s // %[2]d END)", number, have/perSecond)
}

// doubleSQL returns SQL for a JSON text as a double, or NULL if it is not a number, or one that
// a double changes: it has more than 15 digits, or is an integer beyond exactMax.
func doubleSQL(text string) string {
	double := "TRY_CAST(" + text + " AS DOUBLE)"
	digits := "trim(regexp_replace(regexp_replace(" + text + ", '[eE].*', ''), '[^0-9]', '', 'g'), '0')"
	return fmt.Sprintf(`CASE WHEN regexp_full_match(%s, '-?(0|[1-9][0-9]*)') THEN CASE WHEN abs(%[4]s) < %[5]s THEN %[4]s END
		WHEN regexp_full_match(%[1]s, %[2]s) AND (%[3]s = '' OR CAST(%[4]s AS VARCHAR) = %[1]s AND isfinite(%[4]s) OR length(%[3]s) <= 15 AND abs(%[4]s) BETWEEN 2.3e-308 AND 1.7e308) THEN %[4]s END`,
		text, numberPattern, digits, double, exactMax)
}
