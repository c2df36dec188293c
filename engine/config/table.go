package config

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A Table is the declaration of a table of the event store. A pipeline may also write to an
// undeclared table, which is created without settings on first use.
type Table struct {
	Name      string
	Schema    string          `yaml:"schema" example:"emails.yaml" help:"file or address (https://…, s3://…) with the keys event, time, time_unit, unknown, unique and columns of this table"`
	Event     string          `yaml:"event" example:"event_name" help:"column with the event's name; files are sorted by it and have a bloom filter on it"`
	Time      string          `yaml:"time" example:"at" help:"column with the event's own time; an event without it becomes a dead letter"`
	TimeUnit  string          `yaml:"time_unit" default:"(RFC 3339, or a number of seconds)" choices:"s,ms,us,ns,text" example:"ms" help:"unit of numbers since 1970: s, ms, us or ns; text accepts only RFC 3339. With ns the column is of type timestamp_ns"`
	Retention time.Duration   `yaml:"retention" default:"(rows are kept)" example:"30d" help:"age, by the event's own time, after which rows are removed"`
	Sort      []string        `yaml:"sort" default:"(the event column, then the time column)" example:"[user_id, at]" help:"columns to sort files by"`
	Bloom     []string        `yaml:"bloom" example:"[user_id]" help:"further columns with a bloom filter in every file, for searches for rare values"`
	Unknown   catalog.Unknown `yaml:"unknown" default:"add" choices:"add,keep,drop" example:"keep" help:"undeclared fields: add a column for each, keep them in the JSON column _rest, or drop them"`
	Unique    catalog.Unique  `yaml:"unique" help:"drop an event if an event with the same key arrived within a window before it"`
	Lake      catalog.Lake    `yaml:"lake" help:"publish the table as an Iceberg table, which other engines read"`
	Columns   []Column        `yaml:"columns" help:"columns with a declared type; events that do not fit become dead letters"`
	Computed  []Computed      `yaml:"computed" help:"columns whose value a function computes from the event, for every pipeline; table recompute fills them for stored rows"`
	origin
	node *node // declaration in the configuration
}

// A tableSchema holds the keys that a schema file may have.
type tableSchema struct {
	Event    string          `yaml:"event"`
	Time     string          `yaml:"time"`
	TimeUnit string          `yaml:"time_unit" choices:"s,ms,us,ns,text"`
	Unknown  catalog.Unknown `yaml:"unknown" choices:"add,keep,drop"`
	Unique   catalog.Unique  `yaml:"unique"`
	Columns  []Column        `yaml:"columns"`
}

// A Column is a column of a table with a declared type.
type Column struct {
	Name     string `yaml:"name,required" example:"amount" help:"name of the column"`
	Type     string `yaml:"type,required" choices:"@column_types" example:"decimal(18,2)" help:"bool, int32, int64, float64, decimal(18,2), string, bytes, timestamp, timestamp_ns or json"`
	Field    string `yaml:"field" default:"(the name)" example:"user.email" help:"field of the event"`
	Unit     string `yaml:"unit" choices:"s,ms,us,ns,text" example:"ms" help:"unit of a timestamp: s, ms, us or ns for numbers since 1970; text accepts only RFC 3339"`
	Required bool   `yaml:"required" help:"an event without the field becomes a dead letter"`
	origin
}

// readTables reads "tables: {NAME: {…}, …}".
func (d *document) readTables(root *node, known Known) (tables []Table) {
	e := root.get("tables")
	if e == nil || e.value.shape == null || !d.hasShape(e.value, mapping, "tables") {
		return nil
	}
	for _, one := range e.value.entries {
		if i := slices.IndexFunc(tables, func(t Table) bool { return strings.EqualFold(t.Name, one.key) }); i >= 0 {
			d.addFault(one.at, "SQL ignores the case of names", "table %s is already declared as %s", one.key, tables[i].Name)
		}
		t := d.readTable(one, known)
		if i := slices.IndexFunc(tables, func(other Table) bool { return sharesLake(&t, &other) }); i >= 0 {
			d.addFault(one.value.get("lake").at, "set another lake.table for one of them", "tables %s and %s would both be published as %s", tables[i].Name, t.Name, lakeTableOf(&t).Table)
		}
		tables = append(tables, t)
	}
	return tables
}

func lakeTableOf(t *Table) catalog.Lake {
	l := t.Lake
	l.Table = cmp.Or(l.Table, catalog.DefaultLakeTable(t.Name))
	return l
}

func sharesLake(t, other *Table) bool {
	return t.Lake.Warehouse != "" && lakeTableOf(t).Shares(lakeTableOf(other))
}

func (d *document) readTable(e entry, known Known) Table {
	t := Table{origin: origin{d, e.at}}
	if hint := sqltext.TableNameHint(e.key); hint != "" {
		d.addFault(e.at, hint, "invalid table name %s", quoteShort(e.key))
	}
	name := "table " + e.key
	if e.value.shape != null && d.hasShape(e.value, mapping, name) {
		d.decodeStruct(e.value, reflect.ValueOf(&t).Elem(), name)
		t.Name, t.node = e.key, e.value
		if lake := e.value.get("lake"); lake != nil && lake.value.shape == mapping {
			d.checkLake(lake.value, &t)
		}
		if t.Schema == "" { // otherwise ReadSchema checks the columns
			d.checkTable(e.value, &t, known)
		}
	}
	t.Name = e.key
	return t
}

// KeywordColumns returns a fault for each declared column whose name is a keyword of SQL,
// because queries must write it in quotes. Such names are valid otherwise.
func (c *Config) KeywordColumns() (faults Errors) {
	for i := range c.Tables {
		t := &c.Tables[i]
		seen := map[string]bool{}
		add := func(name string, o origin) {
			if lower := strings.ToLower(name); sqltext.IsKeyword(name) && !seen[lower] {
				seen[lower] = true
				err := fmt.Errorf("column %s of table %s has the name of an SQL keyword", name, t.Name)
				faults = append(faults, o.At(err, fmt.Sprintf(`write "%s", with the quotes, in queries, or choose another name`, name)).(Errors)...)
			}
		}
		for _, column := range t.Columns {
			add(column.Name, column.origin)
		}
		for _, column := range t.Computed {
			add(column.Name, column.origin)
		}
		add(t.Time, t.atKey("time"))
		add(t.Event, t.atKey("event"))
	}
	return faults
}

// atKey returns the place of the value of a key in the configuration, or the place of the table.
func (t *Table) atKey(key string) origin {
	o := t.origin
	if t.node != nil {
		if e := t.node.get(key); e != nil {
			o.at = e.value.at
		}
	}
	return o
}

// ReadSchema adds the settings of the table's schema, a YAML text with keys of a table. It
// returns its faults, and those of the configuration together with it, as Errors. file is
// the name of the text in these errors.
func (t *Table) ReadSchema(file, text string, known Known) error {
	d, root := parse(file, text, func(string) (string, bool) { return "", false })
	if root == nil {
		return d.faults.sorted()
	}
	if root.shape == null {
		d.addFault(root.at, `begin with "columns:"`, "the schema is empty")
		return d.faults.sorted()
	}
	if !d.hasShape(root, mapping, "the schema") {
		return d.faults.sorted()
	}
	var s tableSchema
	d.decodeStruct(root, reflect.ValueOf(&s).Elem(), "the schema of table "+t.Name)
	for _, e := range root.entries {
		if t.node.get(e.key) != nil {
			d.addFault(e.at, "remove one of them", "the configuration also sets %s of table %s", e.key, t.Name)
		}
	}
	if len(d.faults) > 0 {
		return d.faults.sorted()
	}
	merged, inConfig := *t, *t.document
	inConfig.faults = nil
	for key, take := range map[string]func(){
		"event": func() { merged.Event = s.Event }, "time": func() { merged.Time = s.Time }, "time_unit": func() { merged.TimeUnit = s.TimeUnit },
		"unknown": func() { merged.Unknown = s.Unknown }, "unique": func() { merged.Unique = s.Unique }, "columns": func() { merged.Columns = s.Columns },
	} {
		if root.get(key) != nil {
			take()
		}
	}
	d.checkTable(root, &merged, known)
	inConfig.checkTable(t.node, &merged, known)
	if err := Join(d.faults.sorted(), inConfig.faults.sorted()); err != nil {
		return err
	}
	*t = merged
	return nil
}

// AtSchema adds the place of schema in the configuration, and a hint, to an error.
func (t *Table) AtSchema(err error, hint string) error { return t.atKey("schema").At(err, hint) }

// checkTable checks the settings of a table in n, together with all its other settings.
func (d *document) checkTable(n *node, t *Table, known Known) {
	for _, key := range []string{"time_unit", "retention"} {
		if setting := n.get(key); t.Time == "" && setting != nil {
			d.addFault(setting.at, "name the column with the event's time: time: COLUMN", "%s of table %s needs a time column", key, t.Name)
		}
	}
	if columns := n.get("columns"); columns != nil && columns.value.shape == sequence {
		for i, item := range columns.value.items {
			if i < len(t.Columns) && item.shape == mapping {
				t.Columns[i].origin = origin{d, item.at}
				d.checkColumn(item, t, i, known)
			}
		}
		d.checkTimeColumn(t)
	}
	if computed := n.get("computed"); computed != nil && computed.value.shape == sequence {
		for i, item := range computed.value.items {
			if i < len(t.Computed) && item.shape == mapping {
				t.Computed[i].origin = d.originOf(item, "func")
				d.checkComputedColumn(item, t, i, known)
			}
		}
	}
	if unique := n.get("unique"); unique != nil && unique.value.shape == mapping {
		d.checkUnique(unique.value, t)
	}
	for _, key := range []string{"event", "sort", "bloom"} {
		if named := n.get(key); named != nil {
			d.checkNamed(named, t)
		}
	}
}

// checkColumn checks column i of a table, declared in n.
func (d *document) checkColumn(n *node, t *Table, i int, known Known) {
	c := t.Columns[i]
	before := slices.ContainsFunc(t.Columns[:i], func(b Column) bool { return strings.EqualFold(b.Name, c.Name) })
	switch {
	case c.Name == "":
	case strings.EqualFold(c.Name, catalog.RestColumn):
		d.addFault(n.get("name").value.at, "choose another name: this column holds the fields without a separate column", "column name %s is reserved", catalog.RestColumn)
	case before:
		d.addFault(n.get("name").value.at, "remove one of them; SQL ignores the case of names", "column %s is declared twice", c.Name)
	}
	if c.Type == "" {
		return
	}
	base, message := splitType(c.Type)
	switch at := n.get("type").value.at; {
	case !slices.Contains(known.ColumnTypes, base):
		d.addFault(at, suggestName(base, known.ColumnTypes), "unknown type %q of column %s", c.Type, c.Name)
		return
	case message != "":
		d.addFault(at, "write the total number of digits and the number after the point, such as decimal(18,2)", "type %q of column %s: %s", c.Type, c.Name, message)
	}
	if c.Unit != "" && !isTime(base) {
		d.addFault(n.get("unit").value.at, "only timestamps have a unit", "column %s is of type %s", c.Name, c.Type)
	}
}

// checkComputedColumn checks computed column i of a table, declared in n.
func (d *document) checkComputedColumn(n *node, t *Table, i int, known Known) {
	c := t.Computed[i]
	if !d.checkComputed(n, "column", c, t.Computed[:i], known) {
		return
	}
	same := func(name string) bool { return strings.EqualFold(name, c.Name) }
	at := n.get("name").value.at
	switch {
	case same(catalog.RestColumn):
		d.addFault(at, "choose another name: this column holds the fields without a separate column", "column name %s is reserved", catalog.RestColumn)
	case same(t.Time):
		d.addFault(at, "compute it in the script of the pipeline", "table %[2]s cannot compute its time column %[1]s", t.Time, t.Name)
	case slices.ContainsFunc(t.Columns, func(b Column) bool { return same(b.Name) }):
		d.addFault(at, "remove it from columns", "column %s is both declared and computed", c.Name)
	case slices.ContainsFunc(t.Computed[:i], func(b Computed) bool { return same(b.Name) }):
		d.addFault(at, "SQL ignores the case of names", "column %s is computed twice", c.Name)
	}
}

// digitsMax is the maximum number of digits of a decimal.
const digitsMax = 38

var decimalType = regexp.MustCompile(`^decimal\(([0-9]{1,2}), ?([0-9]{1,2})\)$`)

// splitType returns the name of a type without its digits, and a message if those are invalid.
func splitType(text string) (base, fault string) {
	base, _, hasDigits := strings.Cut(text, "(")
	if base != "decimal" {
		if hasDigits {
			return text, ""
		}
		return base, ""
	}
	m := decimalType.FindStringSubmatch(text)
	if m == nil {
		return base, "its digits are missing"
	}
	digits, _ := strconv.Atoi(m[1])
	scale, _ := strconv.Atoi(m[2])
	switch {
	case digits < 1 || digits > digitsMax:
		return base, fmt.Sprintf("it must have 1 to %d digits", digitsMax)
	case scale > digits:
		return base, "it has more digits after the point than in all"
	}
	return base, ""
}

func isTime(base string) bool { return base == "timestamp" || base == "timestamp_ns" }

// checkTimeColumn checks the declaration of the time column, if it has one.
func (d *document) checkTimeColumn(t *Table) {
	for _, c := range t.Columns {
		if t.Time == "" || !strings.EqualFold(c.Name, t.Time) {
			continue
		}
		if base, _ := splitType(c.Type); c.Name != t.Time || !isTime(base) {
			d.addFault(c.at, "declare it as timestamp or timestamp_ns, or leave it out", "the time column %s of table %s is declared as %s of type %s", t.Time, t.Name, c.Name, c.Type)
		}
		if c.Unit != "" && t.TimeUnit != "" {
			d.addFault(c.at, "remove unit, or time_unit", "both unit and time_unit set the unit of the time column %s", t.Time)
		}
	}
}

// uniqueWindowMax is the maximum window of a key.
const uniqueWindowMax = 366 * 24 * time.Hour

// checkUnique checks the key of a table, declared in n.
func (d *document) checkUnique(n *node, t *Table) {
	if window := n.get("window"); window != nil {
		w, err := parseDuration(window.value.text)
		if err == nil && w >= 0 && (w < time.Second || w%time.Second != 0 || w > uniqueWindowMax) {
			d.addFault(window.value.at, "use whole seconds, up to 366d, such as 10m or 1d", "invalid window %s", quoteShort(window.value.text))
		}
	}
	if m := t.Unique.Memory; n.get("memory") != nil && m < 1<<20 {
		d.addFault(n.get("memory").value.at, "the default is 256MiB", "memory must be at least 1MiB")
	}
	key := n.get("key")
	if key == nil || key.value.shape != sequence {
		return
	}
	if len(key.value.items) == 0 {
		d.addFault(key.at, "name the columns that identify an event", "key is empty")
	}
	types := map[string]string{}
	declared := []string{}
	if t.Time != "" {
		types[strings.ToLower(t.Time)], declared = "timestamp", append(declared, t.Time)
	}
	for _, c := range t.Columns {
		base, _ := splitType(c.Type)
		types[strings.ToLower(c.Name)], declared = base, append(declared, c.Name)
	}
	for i, item := range key.value.items {
		if item.shape != scalar {
			continue
		}
		base, found := types[strings.ToLower(item.text)]
		switch {
		case !found:
			d.addFault(item.at, cmp.Or(suggestNear(item.text, declared), "declare its type below columns"), "key names column %s, which is not declared", quoteShort(item.text))
		case base == "float64" || base == "decimal" || base == "json":
			d.addFault(item.at, "use columns of another type, such as int64 or string", "key names column %s of type %s, which may spell equal values differently", item.text, base)
		case slices.ContainsFunc(key.value.items[:i], func(n *node) bool { return strings.EqualFold(n.text, item.text) }):
			d.addFault(item.at, "remove one of them", "key names column %s twice", quoteShort(item.text))
		}
	}
}

// checkNamed checks the columns that a setting names. They may be undeclared only if
// undeclared fields become columns.
func (d *document) checkNamed(setting *entry, t *Table) {
	if t.Unknown == catalog.AddUnknown {
		return
	}
	var declared []string
	if t.Time != "" {
		declared = append(declared, t.Time)
	}
	for _, c := range t.Columns {
		declared = append(declared, c.Name)
	}
	for _, c := range t.Computed {
		declared = append(declared, c.Name)
	}
	named := setting.value.items
	if setting.value.shape == scalar {
		named = []*node{setting.value}
	}
	for _, n := range named {
		if n.shape == scalar && !slices.ContainsFunc(declared, func(name string) bool { return strings.EqualFold(name, n.text) }) {
			d.addFault(n.at, suggestName(n.text, declared), "%s names column %s, which is not declared, and unknown: %s adds none", setting.key, quoteShort(n.text), t.Unknown)
		}
	}
}

// toNode returns the table of a literal as the node of its YAML.
func (t *Table) toNode() *node { return nodeOf(reflect.ValueOf(*t), false) }
