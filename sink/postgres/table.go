package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// A plan is how rows get into the table, for the table as it is.
type plan struct {
	format format
	copy   string // the COPY of a batch: into the target, or the staging table
	stage  string // creates the staging table; empty if there is none
	insert string // from the staging table into the target, after the COPY
}

const (
	staging = "pg_temp.perigee_stage" // of each session
	ordinal = "perigee_ordinal"       // the column there that numbers the rows of a batch
)

// isStaged reports whether rows go through a staging table.
func (c *Config) isStaged() bool { return c.Mode == sqlsink.Upsert || c.Mode == sqlsink.Ignore }

// plan reads and checks a table that exists.
func (s *Sink) plan(ctx context.Context, c *conn) (*plan, error) {
	columns, err := s.readColumns(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.target.CheckTable(columns); err != nil {
		return nil, err
	}
	keys, err := s.readKeys(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.newPlan(columns, keys)
}

func (s *Sink) newPlan(columns []sqlsink.TableColumn, keys []sqlsink.Key) (*plan, error) {
	p := &plan{format: newFormat(s.target, columns)}
	into, names := s.target.Name, s.target.ColumnNames()
	if s.config.isStaged() {
		onConflict, err := s.onConflict(columns, keys)
		if err != nil {
			return nil, err
		}
		filled := s.target.QuoteAll(names)
		p.stage = fmt.Sprintf("CREATE TEMP TABLE perigee_stage ON COMMIT DELETE ROWS AS SELECT %s, 0::int4 AS %s FROM %s WITH NO DATA", filled, ordinal, into)
		p.insert = fmt.Sprintf("INSERT INTO %s (%s) SELECT %[2]s FROM %s;", into, filled, onConflict)
		into, names = staging, append(names, ordinal)
	}
	p.copy = fmt.Sprintf("COPY %s (%s) FROM STDIN", into, s.target.QuoteAll(names))
	if p.format.binary {
		p.copy += " (FORMAT binary)"
	}
	p.copy += ";"
	return p, nil
}

// onConflict is what staged rows are selected from, in order, and what happens to
// those whose key exists.
func (s *Sink) onConflict(columns []sqlsink.TableColumn, keys []sqlsink.Key) (string, error) {
	if len(keys) == 0 {
		return "", s.target.NoKey("primary key or unique index of columns that are filled")
	}
	if s.config.Mode == sqlsink.Ignore {
		return staging + " ORDER BY " + ordinal + " ON CONFLICT DO NOTHING", nil
	}
	if len(keys) > 1 && !keys[0].Primary {
		return "", &event.PermanentError{
			Err:  fmt.Errorf("mode is upsert, and the table has %d unique indexes to find a row by: which one is meant?", len(keys)),
			Hint: "make one of them the primary key",
		}
	}
	return s.replaceRows(columns, keys[0])
}

// replaceRows makes the last of the rows with a key win. A statement may touch a row
// only once, so that the others are left out; and it touches them in the order of
// their keys, so that two statements do not deadlock.
func (s *Sink) replaceRows(columns []sqlsink.TableColumn, key sqlsink.Key) (string, error) {
	names, err := s.target.UpdateColumns([]sqlsink.Key{key})
	if err != nil {
		return "", err
	}
	sets := make([]string, len(names))
	for i, name := range names {
		sets[i] = quote(name) + " = EXCLUDED." + quote(name)
	}
	same := s.target.QuoteAll(key.Columns)
	for _, name := range key.Columns {
		if s.target.Find(columns, name).Nullable { // nulls are not equal
			same += fmt.Sprintf(", CASE WHEN %s IS NULL THEN %s END", quote(name), ordinal)
		}
	}
	return fmt.Sprintf("(SELECT DISTINCT ON (%s) * FROM %s ORDER BY %s, %s DESC) s ON CONFLICT (%s) DO UPDATE SET %s",
		same, staging, same, ordinal, s.target.QuoteAll(key.Columns), strings.Join(sets, ", ")), nil
}

// createTable creates the target if the configuration says so.
func (s *Sink) createTable(ctx context.Context, c *conn) error {
	if !s.config.Create {
		return s.target.Missing()
	}
	if err := s.CreateTables(ctx, c, createTarget(s.target)); err != nil {
		return fmt.Errorf("creating the table: %w", err)
	}
	s.log.Info("created the table", "sink", s.config.Address, "database", s.config.Database, "table", s.target.Name)
	return nil
}

// tableExists reports whether the target exists. It rejects one that does not commit
// with perigee_ranges, or that loses rows which perigee_ranges has.
func (s *Sink) tableExists(ctx context.Context, c *conn) (bool, error) {
	rows, err := c.Query(ctx, fmt.Sprintf(`SELECT c.relkind, c.relpersistence FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = %s AND c.relname = %s`, quoteText(s.config.Schema), quoteText(s.config.Table)))
	if err != nil || len(rows) == 0 {
		return false, err
	}
	switch kind, persistence := string(rows[0][0]), string(rows[0][1]); {
	case kind != "r" && kind != "p":
		return false, &event.PermanentError{
			Err:  fmt.Errorf("%s is not an ordinary table", s.config.Table),
			Hint: "name a table, such as the one behind a view",
		}
	case persistence != "p":
		return false, &event.PermanentError{
			Err:  fmt.Errorf("%s is an unlogged table, which is emptied after a crash while its events count as delivered", s.config.Table),
			Hint: "ALTER TABLE " + s.target.Name + " SET LOGGED",
		}
	}
	return true, nil
}

func (s *Sink) readColumns(ctx context.Context, c *conn) ([]sqlsink.TableColumn, error) {
	rows, err := c.Query(ctx, fmt.Sprintf(`SELECT a.attname, b.typname, format_type(a.atttypid, a.atttypmod), b.typtype = 'e',
		CASE WHEN b.typname = 'numeric' AND greatest(a.atttypmod, t.typtypmod) > 0
			THEN information_schema._pg_numeric_scale(b.oid, greatest(a.atttypmod, t.typtypmod)) ELSE -1 END,
		NOT (a.attnotnull OR t.typnotnull),
		(a.attnotnull OR t.typnotnull) AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL,
		a.attgenerated <> '' OR a.attidentity = 'a'
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
		WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, quoteText(s.target.Name)))
	if err != nil {
		return nil, err
	}
	columns := make([]sqlsink.TableColumn, len(rows))
	for i, row := range rows {
		isTrue := func(i int) bool { return string(row[i]) == "t" }
		scale, err := strconv.Atoi(string(row[4]))
		if err != nil {
			return nil, err
		}
		columns[i] = sqlsink.TableColumn{
			Name: string(row[0]), Type: string(row[1]), FullType: string(row[2]), Enum: isTrue(3), Scale: scale,
			Nullable: isTrue(5), Required: isTrue(6), Computed: isTrue(7),
		}
	}
	return columns, nil
}

// readKeys reads the unique indexes whose columns are all filled: those by which a row
// may exist.
func (s *Sink) readKeys(ctx context.Context, c *conn) ([]sqlsink.Key, error) {
	rows, err := c.Query(ctx, fmt.Sprintf(`SELECT i.indexrelid, i.indisprimary, a.attname
		FROM pg_index i CROSS JOIN unnest(i.indkey[0:i.indnkeyatts-1]) AS k(n) LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n
		WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
		ORDER BY i.indisprimary DESC, i.indexrelid`, quoteText(s.target.Name)))
	if err != nil {
		return nil, err
	}
	var keys []sqlsink.Key
	index := ""
	for _, row := range rows {
		if string(row[0]) != index {
			index = string(row[0])
			keys = append(keys, sqlsink.Key{Primary: string(row[1]) == "t"})
		}
		last := &keys[len(keys)-1]
		last.Columns = append(last.Columns, string(row[2]))
	}
	return slices.DeleteFunc(keys, func(k sqlsink.Key) bool { return !s.target.FillsAll(k) }), nil
}

// Missing implements sqlsink.Database.
func (s *Sink) Missing(ctx context.Context, c sqlsink.Conn, names []string) ([]string, error) {
	var queries []string
	for _, name := range names {
		queries = append(queries, fmt.Sprintf("SELECT %s WHERE to_regclass(%s) IS NULL", quoteText(name), quoteText(s.target.Dialect.Table(name))))
	}
	rows, err := c.Query(ctx, strings.Join(queries, " UNION ALL "))
	var missing []string
	for _, row := range rows {
		missing = append(missing, string(row[0]))
	}
	return missing, err
}

// createLock keeps two workers from creating the same table at the same time, which
// the server takes for an error even with IF NOT EXISTS.
const createLock = "SELECT pg_advisory_xact_lock(hashtext('perigee: making tables'))"

// CreateTables implements sqlsink.Database, in one transaction.
func (s *Sink) CreateTables(ctx context.Context, c sqlsink.Conn, statements []string) error {
	return c.Exec(ctx, "BEGIN;"+createLock+";"+strings.Join(statements, ";")+";COMMIT")
}
