package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A target is the table as the server has it.
type target struct {
	columns []found
	keys    []key // unique, over columns that are filled; a primary key is the first
}

// A found column is one that the target table has.
type found struct {
	name     string
	kind     string // "varchar"; of a domain, what it is made of
	full     string // "character varying(100)"
	enum     bool
	scale    int  // digits after the point, of a numeric; otherwise -1
	nullable bool // it has no NOT NULL
	needed   bool // an insert must name it
	computed bool
}

// A key is a unique index.
type key struct {
	columns []string
	primary bool
}

// prepareTarget makes the table when it is absent and may be made, checks it,
// and returns what it is.
func (s *Sink) prepareTarget(ctx context.Context, c *conn) (*target, error) {
	present, err := s.checkRelation(ctx, c)
	if err != nil {
		return nil, err
	}
	if !present {
		if !s.config.Create {
			return nil, s.config.absent()
		}
		if err := c.make(ctx, s.config.createTable()); err != nil {
			return nil, fmt.Errorf("making the table: %w", err)
		}
		s.log.Info("made the table", "sink", s.config.Address, "database", s.config.Database, "table", s.config.name())
	}
	return s.readTarget(ctx, c)
}

func (c *Config) absent() error {
	return &event.PermanentError{
		Err:  fmt.Errorf("there is no table %s in schema %s of database %s", c.Table, c.Schema, c.Database),
		Hint: "set create: true, or run: " + strings.Join(c.createTable(), "; "),
	}
}

// readTarget reads and checks a table that is there.
func (s *Sink) readTarget(ctx context.Context, c *conn) (*target, error) {
	columns, err := s.readColumns(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.config.checkColumns(columns); err != nil {
		return nil, err
	}
	keys, err := s.readKeys(ctx, c)
	return &target{columns: columns, keys: keys}, err
}

// checkRelation tells whether the table is there. It refuses what does not
// commit with the ledger, or loses rows that the ledger has.
func (s *Sink) checkRelation(ctx context.Context, c *conn) (present bool, err error) {
	rows, err := c.do(ctx, fmt.Sprintf(`SELECT c.relkind, c.relpersistence FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = %s AND c.relname = %s`, quoteText(s.config.Schema), quoteText(s.config.Table)))
	if err != nil || len(rows) == 0 {
		return false, err
	}
	switch kind, persistence := string(rows[0][0]), string(rows[0][1]); {
	case kind != "r" && kind != "p":
		return false, &event.PermanentError{
			Err:  fmt.Errorf("%s is no ordinary table", s.config.Table),
			Hint: "name a table, such as the one behind a view",
		}
	case persistence != "p":
		return false, &event.PermanentError{
			Err:  fmt.Errorf("%s is an unlogged table, which is emptied after a crash while its events count as delivered", s.config.Table),
			Hint: "ALTER TABLE " + s.config.name() + " SET LOGGED",
		}
	}
	return true, nil
}

func (s *Sink) readColumns(ctx context.Context, c *conn) ([]found, error) {
	rows, err := c.do(ctx, fmt.Sprintf(`SELECT a.attname, b.typname, format_type(a.atttypid, a.atttypmod), b.typtype = 'e',
		CASE WHEN b.typname = 'numeric' AND greatest(a.atttypmod, t.typtypmod) > 0
			THEN information_schema._pg_numeric_scale(b.oid, greatest(a.atttypmod, t.typtypmod)) ELSE -1 END,
		NOT (a.attnotnull OR t.typnotnull),
		(a.attnotnull OR t.typnotnull) AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL,
		a.attgenerated <> '' OR a.attidentity = 'a'
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
		WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, quoteText(s.config.name())))
	if err != nil {
		return nil, err
	}
	var all []found
	for _, row := range rows {
		yes := func(i int) bool { return string(row[i]) == "t" }
		scale, err := strconv.Atoi(string(row[4]))
		if err != nil {
			return nil, err
		}
		all = append(all, found{
			name: string(row[0]), kind: string(row[1]), full: string(row[2]), enum: yes(3), scale: scale,
			nullable: yes(5), needed: yes(6), computed: yes(7),
		})
	}
	return all, nil
}

// readKeys reads the unique indexes whose columns are all filled: those by which
// a row can be there already.
func (s *Sink) readKeys(ctx context.Context, c *conn) ([]key, error) {
	rows, err := c.do(ctx, fmt.Sprintf(`SELECT i.indexrelid, i.indisprimary, a.attname
		FROM pg_index i CROSS JOIN unnest(i.indkey[0:i.indnkeyatts-1]) AS k(n) LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n
		WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
		ORDER BY i.indisprimary DESC, i.indexrelid`, quoteText(s.config.name())))
	if err != nil {
		return nil, err
	}
	var keys []key
	index := ""
	for _, row := range rows {
		if string(row[0]) != index {
			index = string(row[0])
			keys = append(keys, key{primary: string(row[1]) == "t"})
		}
		last := &keys[len(keys)-1]
		last.columns = append(last.columns, string(row[2]))
	}
	return slices.DeleteFunc(keys, func(k key) bool { return !s.config.fills(k.columns) }), nil
}

// fills tells whether all the named columns are filled.
func (c *Config) fills(names []string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(c.Columns, func(column table.Column) bool { return column.Name == name }) {
			return false
		}
	}
	return true
}

// checkColumns holds the configured columns against those of the table.
func (c *Config) checkColumns(present []found) error {
	for _, column := range c.Columns {
		f := find(present, column.Name)
		if f == nil {
			return c.missingColumn(column, present)
		}
		if f.computed {
			return &event.PermanentError{
				Err:  fmt.Errorf("column %q is computed by the server", f.name),
				Hint: "remove it from columns",
			}
		}
		if !takes(f, event.Type(column.Type)) {
			return &event.PermanentError{
				Err: fmt.Errorf("column %q is %s in the table, which does not take every %v as it is", f.name, f.full, event.Type(column.Type)),
				Hint: fmt.Sprintf("change its type in columns, or run: ALTER TABLE %s ALTER COLUMN %s TYPE %s",
					c.name(), quote(f.name), sqlType(column)),
			}
		}
	}
	for _, f := range present {
		if f.needed && !c.fills([]string{f.name}) {
			return &event.PermanentError{
				Err: fmt.Errorf("column %q must have a value (NOT NULL, no default) and nothing fills it", f.name),
				Hint: fmt.Sprintf("add it to columns, or run: ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL",
					c.name(), quote(f.name)),
			}
		}
	}
	return nil
}

func (c *Config) missingColumn(column table.Column, present []found) error {
	names := make([]string, len(present))
	for i, f := range present {
		names[i] = f.name
	}
	message := fmt.Sprintf("the table has no column %q", column.Name)
	if near := nearest.Name(column.Name, names); near != "" {
		message += fmt.Sprintf("; the nearest it has is %q", near)
	}
	return &event.PermanentError{
		Err: errors.New(message),
		Hint: fmt.Sprintf("correct the name (the table has %s), or run: ALTER TABLE %s ADD COLUMN %s",
			strings.Join(names, ", "), c.name(), definition(column)),
	}
}

func find(present []found, name string) *found {
	for i := range present {
		if present[i].name == name {
			return &present[i]
		}
	}
	return nil
}

func takes(f *found, t event.Type) bool {
	return slices.Contains(takers[t], f.kind) || f.enum && t == event.String
}

var (
	texts   = []string{"text", "varchar", "bpchar", "citext"}
	numbers = []string{"int2", "int4", "int8", "numeric", "float4", "float8"}
)

// takers says which types of columns take a type of ours: they hold any of its
// values, or refuse it; none changes it in silence, but for the precision of
// numbers that are no decimals.
var takers = map[event.Type][]string{
	event.Bool:    slices.Concat(texts, []string{"bool"}),
	event.Int32:   slices.Concat(texts, numbers),
	event.Int64:   slices.Concat(texts, numbers),
	event.Float64: slices.Concat(texts, []string{"numeric", "float4", "float8"}),
	event.Decimal: slices.Concat(texts, []string{"numeric", "float4", "float8"}),
	event.String: slices.Concat(texts, []string{"uuid", "inet", "cidr", "macaddr", "macaddr8", "date", "time", "timetz",
		"timestamp", "timestamptz", "interval", "json", "jsonb", "xml", "ltree"}),
	event.Timestamp: slices.Concat(texts, []string{"timestamptz", "timestamp"}),
	event.JSON:      slices.Concat(texts, []string{"json", "jsonb"}),
}

// name is the table's, with its schema.
func (c *Config) name() string { return c.in(c.Table) }

// in is the name of a table of the schema.
func (c *Config) in(table string) string { return quote(c.Schema) + "." + quote(table) }

// createTable is the statements that make the target.
func (c *Config) createTable() []string {
	var lines []string
	for _, column := range c.Columns {
		lines = append(lines, definition(column))
	}
	if len(c.PrimaryKey) > 0 {
		lines = append(lines, "PRIMARY KEY ("+quoteAll(c.PrimaryKey)+")")
	}
	statements := []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s)", c.name(), strings.Join(lines, ", "))}
	for _, index := range table.Keys(c.Indexes) {
		name := c.Table + "_" + strings.Join(index, "_")
		statements = append(statements, fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (%s)",
			quote(name[:min(len(name), longestName)]), c.name(), quoteAll(index)))
	}
	return statements
}

func definition(c table.Column) string {
	if c.Required {
		return quote(c.Name) + " " + sqlType(c) + " NOT NULL"
	}
	return quote(c.Name) + " " + sqlType(c)
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

// makeLock keeps two workers from making the same table at the same time, which
// the server takes for an error even with IF NOT EXISTS.
const makeLock = "SELECT pg_advisory_xact_lock(hashtext('perigee: making tables'))"

// make makes tables in one transaction.
func (c *conn) make(ctx context.Context, statements []string) error {
	_, err := c.do(ctx, "BEGIN;"+makeLock+";"+strings.Join(statements, ";")+";COMMIT")
	if err != nil {
		rollBack(ctx, c)
	}
	return err
}
