package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A found column is one that the target table has.
type found struct {
	name      string
	kind      string // "varchar"
	full      string // "varchar(100)"
	scale     int    // digits after the point, of a decimal; otherwise -1
	needed    bool   // an insert must name it
	generated bool

	autoIncrement bool
}

// A key is the columns of a primary or unique key.
type key []string

// prepareTarget makes the table when it is absent and may be made.
func (s *Sink) prepareTarget(ctx context.Context, conn *sql.Conn) error {
	there, err := present(ctx, conn, s.config.Database, s.config.Table)
	if err != nil || there {
		return err
	}
	if !s.config.Create {
		return &event.PermanentError{
			Err:  fmt.Errorf("there is no table %s in database %s", s.config.Table, s.config.Database),
			Hint: "set create: true, or run: " + s.config.createTable(),
		}
	}
	if _, err := conn.ExecContext(ctx, s.config.createTable()); err != nil {
		return fmt.Errorf("making the table: %w", err)
	}
	s.log.Info("made the table", "sink", s.config.server(), "database", s.config.Database, "table", s.config.Table)
	return nil
}

func (s *Sink) engine(ctx context.Context, conn *sql.Conn) (engine sql.NullString, err error) {
	err = conn.QueryRowContext(ctx, "SELECT engine FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
		s.config.Database, s.config.Table).Scan(&engine)
	return engine, err
}

// checkEngine refuses an engine that may keep rows of a transaction that was
// rolled back, or commit without those of the ledger.
func (c *Config) checkEngine(engine string) error {
	switch {
	case engine == "":
		return &event.PermanentError{Err: fmt.Errorf("%s is a view", c.Table), Hint: "name the table behind it"}
	case !strings.EqualFold(engine, "InnoDB"):
		return &event.PermanentError{
			Err:  fmt.Errorf("its engine is %s, which has no transactions with InnoDB, so rows could be written twice or not at all", engine),
			Hint: fmt.Sprintf("ALTER TABLE %s.%s ENGINE=InnoDB", quote(c.Database), quote(c.Table)),
		}
	}
	return nil
}

func (s *Sink) readColumns(ctx context.Context, conn *sql.Conn) ([]found, error) {
	rows, err := conn.QueryContext(ctx, `SELECT column_name, LOWER(data_type), column_type, COALESCE(numeric_scale, -1),
		is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%auto_increment%' AND extra NOT LIKE '%GENERATED%',
		extra LIKE '%GENERATED%' AND extra NOT LIKE '%DEFAULT_GENERATED%', extra LIKE '%auto_increment%'
		FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position`,
		s.config.Database, s.config.Table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []found
	for rows.Next() {
		var f found
		if err := rows.Scan(&f.name, &f.kind, &f.full, &f.scale, &f.needed, &f.generated, &f.autoIncrement); err != nil {
			return nil, err
		}
		if f.kind != "decimal" {
			f.scale = -1
		}
		all = append(all, f)
	}
	return all, rows.Err()
}

// readKeys returns the primary key, if there is one, and then the unique ones.
func (s *Sink) readKeys(ctx context.Context, conn *sql.Conn) ([]key, error) {
	rows, err := conn.QueryContext(ctx, `SELECT index_name, column_name FROM information_schema.statistics
		WHERE table_schema = ? AND table_name = ? AND non_unique = 0 AND column_name IS NOT NULL
		ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index`, s.config.Database, s.config.Table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []key
	var last string
	for rows.Next() {
		var index, column string
		if err := rows.Scan(&index, &column); err != nil {
			return nil, err
		}
		if len(keys) == 0 || index != last {
			keys, last = append(keys, nil), index
		}
		keys[len(keys)-1] = append(keys[len(keys)-1], column)
	}
	return keys, rows.Err()
}

// checkColumns holds the configured columns against those of the table.
func (c *Config) checkColumns(present []found) error {
	for _, column := range c.Columns {
		f := find(present, column.Name)
		if f == nil {
			return c.missingColumn(column, present)
		}
		if f.generated {
			return &event.PermanentError{
				Err:  fmt.Errorf("column %q is computed by the server", f.name),
				Hint: "remove it from columns",
			}
		}
		if !slices.Contains(takers[event.Type(column.Type)], f.kind) {
			return &event.PermanentError{
				Err: fmt.Errorf("column %q is %s in the table, which does not take every %v as it is", f.name, f.full, event.Type(column.Type)),
				Hint: fmt.Sprintf("change its type in columns, or run: ALTER TABLE %s.%s MODIFY %s %s",
					quote(c.Database), quote(c.Table), quote(f.name), sqlType(column)),
			}
		}
	}
	for _, f := range present {
		filled := func(column Column) bool { return strings.EqualFold(column.Name, f.name) }
		if f.needed && !slices.ContainsFunc(c.Columns, filled) {
			return &event.PermanentError{
				Err: fmt.Errorf("column %q must have a value (NOT NULL, no default) and nothing fills it", f.name),
				Hint: fmt.Sprintf("add it to columns, or run: ALTER TABLE %s.%s MODIFY %s %s NULL",
					quote(c.Database), quote(c.Table), quote(f.name), f.full),
			}
		}
	}
	return nil
}

func (c *Config) missingColumn(column Column, present []found) error {
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
		Hint: fmt.Sprintf("correct the name (the table has %s), or run: ALTER TABLE %s.%s ADD COLUMN %s",
			strings.Join(names, ", "), quote(c.Database), quote(c.Table), definition(column)),
	}
}

func find(present []found, name string) *found {
	for i := range present {
		if strings.EqualFold(present[i].name, name) {
			return &present[i]
		}
	}
	return nil
}

var (
	wholes = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}
	texts  = []string{"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
	reals  = []string{"float", "double"}
)

// takers says which types of columns take a type of ours: they hold any of its
// values, or refuse it; none changes it in silence, but for the precision of
// numbers that are no decimals.
var takers = map[event.Type][]string{
	event.Bool:    slices.Concat(wholes, texts),
	event.Int32:   slices.Concat(wholes, texts, reals, []string{"decimal"}),
	event.Int64:   slices.Concat(wholes, texts, reals, []string{"decimal"}),
	event.Float64: slices.Concat(texts, reals, []string{"decimal"}),
	event.Decimal: slices.Concat(texts, reals, []string{"decimal"}),
	event.String: slices.Concat(texts, []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob",
		"enum", "set", "uuid", "inet4", "inet6", "date", "time", "datetime", "timestamp", "year", "json"}),
	event.Timestamp: slices.Concat(texts, []string{"datetime", "timestamp"}),
	event.JSON:      slices.Concat(texts, []string{"json"}),
}

// createTable is the statement that makes the target.
func (c *Config) createTable() string {
	var lines []string
	for _, column := range c.Columns {
		lines = append(lines, definition(column))
	}
	if len(c.PrimaryKey) > 0 {
		lines = append(lines, "PRIMARY KEY "+quoteAll(c.PrimaryKey))
	}
	for _, index := range table.Keys(c.Indexes) {
		lines = append(lines, "KEY "+quoteAll(index))
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s.%s (%s) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
		quote(c.Database), quote(c.Table), strings.Join(lines, ", "))
}

// insertHead is how a statement begins that inserts rows.
func (c *Config) insertHead() string {
	return "INSERT INTO " + quote(c.Table) + " " + quoteAll(c.columnNames()) + " VALUES "
}

func (c *Config) columnNames() []string {
	names := make([]string, len(c.Columns))
	for i, column := range c.Columns {
		names[i] = column.Name
	}
	return names
}

func definition(c Column) string {
	null := " NULL"
	if c.Required {
		null = " NOT NULL"
	}
	return quote(c.Name) + " " + sqlType(c) + null
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	return "(" + strings.Join(quoted, ", ") + ")"
}
