package scaffold

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/inspect"
)

const (
	columnsMax = 100 // of a table
	depthMax   = 3   // keys of a path that becomes a column; deeper values stay in a column of JSON
	digitsMax  = 38  // of a decimal
)

// A column is a column of a table, for any sink with columns.
type column struct {
	name, field string // field is empty if it is the name
	kind        event.Type
	unit        string // of a timestamp from numbers
	longest     int    // characters of a text
	digits      int    // after the point, of a decimal
	isTime      bool   // the time of the event
	isEvent     bool   // its name
}

// columns returns a column for each value in the events, and of objects for each value in them.
func (p *Project) columns() (columns []column) {
	names := map[string]bool{}
	inJSON := "" // path of a column of JSON, whose content has no columns
	for i := range p.report.Fields {
		f := &p.report.Fields[i]
		if len(columns) == columnsMax || f.InArray || inJSON != "" && strings.HasPrefix(f.Path, inJSON) || !isPath(f.Keys) {
			continue
		}
		if f.Type == "object" && f.HasContent && len(f.Keys) < depthMax {
			continue // its fields follow
		}
		if f.HasContent {
			inJSON = f.Path + "."
		}
		c := describe(f)
		c.isTime, c.isEvent = f.Path == p.report.Time && p.inEvery(f), f.Path == p.report.EventName
		if names[strings.ToLower(c.name)] {
			continue
		}
		names[strings.ToLower(c.name)] = true
		columns = append(columns, c)
	}
	return columns
}

// inEvery reports whether every event has a field.
func (p *Project) inEvery(f *inspect.Field) bool {
	return f.Present == p.report.Events-p.report.Rejected && f.Null == 0
}

// isPath reports whether a column can name a field by its keys, with dots between them.
func isPath(keys []string) bool {
	for _, key := range keys {
		if key == "" || strings.Contains(key, ".") || strings.ContainsFunc(key, unicode.IsControl) {
			return false
		}
	}
	return true
}

func describe(f *inspect.Field) column {
	path := strings.Join(f.Keys, ".")
	c := column{name: columnName(f.Keys), field: path, kind: f.Column, longest: f.Longest}
	if c.name == path {
		c.field = ""
	}
	switch c.kind {
	case event.Timestamp:
		if c.unit = f.TimeUnit; c.unit == "text" {
			c.unit = ""
		}
	case event.Decimal:
		whole := 0
		for _, number := range append(f.Examples, f.Least, f.Greatest) {
			before, after, _ := strings.Cut(strings.TrimPrefix(number, "-"), ".")
			whole, c.digits = max(whole, len(before)), max(c.digits, len(after))
			if strings.ContainsAny(number, "eE") {
				whole = digitsMax + 1
			}
		}
		if whole+c.digits > digitsMax {
			c.kind = event.JSON // keeps every digit
		}
	}
	return c
}

// columnName returns a name that SQL takes without quotes: user_id for user.id.
func columnName(keys []string) string {
	var b strings.Builder
	for _, r := range strings.Join(keys, "_") {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '_' {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	name := b.String()
	if unicode.IsDigit(rune(name[0])) {
		name = "_" + name
	}
	return name[:min(len(name), 60)]
}

// A dialect names the types of a database.
type dialect struct {
	types   map[event.Type]string
	decimal string   // with the digits after the point
	texts   []string // for texts of at most textLengths characters, and for longer ones
}

var textLengths = []int{32, 120, 500, 2000}

var (
	mysqlDialect = dialect{
		types: map[event.Type]string{event.Bool: "BOOLEAN", event.Int64: "BIGINT", event.Float64: "DOUBLE", event.Timestamp: "DATETIME(6)", event.JSON: "JSON"},
		texts: []string{"VARCHAR(64)", "VARCHAR(255)", "VARCHAR(1000)", "VARCHAR(4000)", "MEDIUMTEXT"}, decimal: "DECIMAL(38,%d)",
	}
	postgresDialect = dialect{
		types: map[event.Type]string{event.Bool: "BOOLEAN", event.Int64: "BIGINT", event.Float64: "DOUBLE PRECISION", event.Timestamp: "TIMESTAMPTZ", event.JSON: "JSONB"},
		texts: []string{"TEXT", "TEXT", "TEXT", "TEXT", "TEXT"}, decimal: "NUMERIC(38,%d)",
	}
)

// sqlColumns writes the columns of an SQL sink. These take numbers as times only in seconds.
func (p *Project) sqlColumns(d dialect, indent string) string {
	var b strings.Builder
	for _, c := range p.columns() {
		if c.unit != "" && c.unit != "s" {
			c.kind = event.Int64
		}
		fmt.Fprintf(&b, "%s- {name: %s, type: %s%s, sql: %q}\n", indent, quote(c.name), c.kind, c.fieldSetting(), d.typeOf(c))
	}
	return b.String()
}

func (d *dialect) typeOf(c column) string {
	switch c.kind {
	case event.Decimal:
		return fmt.Sprintf(d.decimal, c.digits)
	case event.String:
		i := 0
		for i < len(textLengths) && c.longest > textLengths[i] {
			i++
		}
		return d.texts[i]
	}
	return d.types[c.kind]
}

func (c *column) fieldSetting() string {
	if c.field == "" {
		return ""
	}
	return ", field: " + quote(c.field)
}

// table writes the declaration of a table of the event store.
func (p *Project) table() string {
	var head, columns strings.Builder
	for _, c := range p.columns() {
		if c.isEvent && c.field == "" {
			fmt.Fprintf(&head, "    event: %s\n", quote(c.name))
		}
		if c.isTime && c.field == "" {
			fmt.Fprintf(&head, "    time: %s\n", quote(c.name))
			if c.unit != "" && c.unit != "s" {
				fmt.Fprintf(&head, "    time_unit: %s\n", c.unit)
			}
			continue
		}
		kind, unit := c.kind.String(), ""
		if c.kind == event.Decimal {
			kind = fmt.Sprintf(`"decimal(38,%d)"`, c.digits)
		}
		if c.unit != "" && c.unit != "s" {
			unit = ", unit: " + c.unit
		}
		fmt.Fprintf(&columns, "      - {name: %s, type: %s%s%s}\n", quote(c.name), kind, c.fieldSetting(), unit)
	}
	text := head.String()
	if columns.Len() > 0 {
		text += "    columns:\n" + columns.String()
	}
	if text == "" {
		return fmt.Sprintf("tables:\n  %s: {}\n", p.Name)
	}
	return fmt.Sprintf("tables:\n  %s:\n%s", p.Name, text)
}

// quote returns a text as YAML, in quotes unless it is a plain word that means only itself.
func quote(text string) string {
	plain := text != ""
	for i, r := range text {
		plain = plain && (r < 0x80 && unicode.IsLetter(r) || r == '_' || i > 0 && (r < 0x80 && unicode.IsDigit(r) || r == '.'))
	}
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		plain = false
	}
	if plain {
		return text
	}
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, "'", "''"), "$", "$$") + "'"
}
