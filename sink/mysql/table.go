package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// A plan is how rows get into the table, for the server and the table as they are.
type plan struct {
	method Method      // Rows or Bulk
	head   string      // of an INSERT, up to its rows
	tail   string      // of an INSERT, behind its rows
	packet int         // bytes of the longest packet that the server accepts
	scales []int       // of our columns: digits after the point that a decimal keeps, or -1
	kinds  []wire.Kind // of our columns, as parameters
}

// plan reads the table and the settings of the server, and rejects what cannot work.
func (s *Sink) plan(ctx context.Context, c conn) (plan, error) {
	p := plan{head: "INSERT INTO " + quote(s.config.Table) + " (" + dialect.QuoteAll(s.target.ColumnNames()) + ") VALUES "}
	if err := s.checkEngine(ctx, c); err != nil {
		return p, err
	}
	columns, err := s.readColumns(ctx, c)
	if err == nil {
		err = s.target.CheckTable(columns)
	}
	if err != nil {
		return p, err
	}
	for _, column := range s.columns {
		p.scales = append(p.scales, s.target.Find(columns, column.Name).Scale)
	}
	p.kinds = s.parameterKinds(columns)
	keys, err := s.readKeys(ctx, c)
	if err != nil {
		return p, err
	}
	if p.tail, err = s.onDuplicateKey(keys); err != nil {
		return p, err
	}
	server, err := readServer(ctx, c)
	if err != nil {
		return p, err
	}
	p.packet = server.packet
	chosen, err := s.config.chooseMethod(server)
	if err != nil {
		return p, err
	}
	p.method = chosen.method
	s.report(chosen, server)
	return p, nil
}

func (s *Sink) tableExists(ctx context.Context, c conn) (bool, error) {
	missing, err := s.Missing(ctx, c, []string{s.config.Table})
	return len(missing) == 0, err
}

// createTable creates the target if the configuration says so.
func (s *Sink) createTable(ctx context.Context, c conn) error {
	if !s.config.Create {
		return s.target.Missing()
	}
	if err := s.CreateTables(ctx, c, createTarget(s.target)); err != nil {
		return fmt.Errorf("creating the table: %w", err)
	}
	s.log.Info("created the table", "sink", s.config.server(), "database", s.config.Database, "table", s.config.Table)
	return nil
}

// inTable is the condition of information_schema that finds the target.
func (s *Sink) inTable() string {
	return "table_schema = " + quoteText(s.config.Database) + " AND table_name = " + quoteText(s.config.Table)
}

// checkEngine rejects an engine that may keep rows of a transaction that was rolled
// back, or commit without those of perigee_ranges.
func (s *Sink) checkEngine(ctx context.Context, c conn) error {
	rows, err := c.Query(ctx, "SELECT engine FROM information_schema.tables WHERE "+s.inTable())
	if err != nil {
		return err
	}
	switch engine := string(rows[0][0]); {
	case engine == "":
		return &event.PermanentError{Err: fmt.Errorf("%s is a view", s.config.Table), Hint: "name the table behind it"}
	case !strings.EqualFold(engine, "InnoDB"):
		return &event.PermanentError{
			Err:  fmt.Errorf("its engine is %s, which shares no transactions with InnoDB, so rows could be written twice or not at all", engine),
			Hint: "ALTER TABLE " + s.target.Name + " ENGINE=InnoDB",
		}
	}
	return nil
}

func (s *Sink) readColumns(ctx context.Context, c conn) ([]sqlsink.TableColumn, error) {
	rows, err := c.Query(ctx, `SELECT column_name, LOWER(data_type), column_type, CAST(IF(data_type = 'decimal', numeric_scale, -1) AS SIGNED),
		is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%auto_increment%' AND extra NOT LIKE '%GENERATED%',
		extra LIKE '%GENERATED%' AND extra NOT LIKE '%DEFAULT_GENERATED%'
		FROM information_schema.columns WHERE `+s.inTable()+" ORDER BY ordinal_position")
	if err != nil {
		return nil, err
	}
	columns := make([]sqlsink.TableColumn, len(rows))
	for i, row := range rows {
		scale, err := strconv.Atoi(string(row[3]))
		if err != nil {
			return nil, err
		}
		columns[i] = sqlsink.TableColumn{
			Name: string(row[0]), Type: string(row[1]), FullType: string(row[2]), Scale: scale,
			Required: string(row[4]) == "1", Computed: string(row[5]) == "1",
		}
	}
	return columns, nil
}

// readKeys returns the primary key, if there is one, and then the unique ones.
func (s *Sink) readKeys(ctx context.Context, c conn) ([]sqlsink.Key, error) {
	rows, err := c.Query(ctx, "SELECT index_name, column_name FROM information_schema.statistics WHERE "+s.inTable()+
		" AND non_unique = 0 AND column_name IS NOT NULL ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index")
	if err != nil {
		return nil, err
	}
	var keys []sqlsink.Key
	index := ""
	for _, row := range rows {
		if len(keys) == 0 || string(row[0]) != index {
			index = string(row[0])
			keys = append(keys, sqlsink.Key{Primary: index == "PRIMARY"})
		}
		last := &keys[len(keys)-1]
		last.Columns = append(last.Columns, string(row[1]))
	}
	return keys, nil
}

// onDuplicateKey is how an INSERT ends that meets keys which exist. IGNORE would let
// bad values pass as well, so that mode ignore sets a column to what it is.
func (s *Sink) onDuplicateKey(keys []sqlsink.Key) (string, error) {
	switch s.config.Mode {
	case sqlsink.Ignore:
		if len(keys) == 0 {
			return "", s.target.NoKey("unique key by which a row could exist")
		}
		same := quote(keys[0].Columns[0])
		return " ON DUPLICATE KEY UPDATE " + same + " = " + same, nil
	case sqlsink.Upsert:
		if !slices.ContainsFunc(keys, s.target.FillsAll) {
			return "", s.target.NoKey("primary or unique key of columns that are filled")
		}
		names, err := s.target.UpdateColumns(keys)
		if err != nil {
			return "", err
		}
		sets := make([]string, len(names))
		for i, name := range names {
			sets[i] = quote(name) + " = VALUES(" + quote(name) + ")"
		}
		return " ON DUPLICATE KEY UPDATE " + strings.Join(sets, ", "), nil
	}
	return "", nil
}

// serverSettings are those that decide how rows are inserted.
type serverSettings struct {
	packet, flush int
	noBulk        string // why arrays of parameters cannot be used; empty if they can
}

func readServer(ctx context.Context, c conn) (v serverSettings, err error) {
	rows, err := c.Query(ctx, "SELECT @@max_allowed_packet, @@innodb_flush_log_at_trx_commit")
	if err != nil {
		return v, err
	}
	if v.packet, err = strconv.Atoi(string(rows[0][0])); err != nil {
		return v, err
	}
	if v.flush, err = strconv.Atoi(string(rows[0][1])); err != nil {
		return v, err
	}
	if !c.wire().SupportsBulk() {
		v.noBulk = "the server has no arrays of parameters, as only MariaDB does"
		return v, nil
	}
	// A log of statements has no form for an array.
	rows, err = c.Query(ctx, "SELECT @@log_bin AND @@binlog_format = 'STATEMENT'")
	if err == nil && string(rows[0][0]) == "1" {
		v.noBulk = "binlog_format is STATEMENT, and arrays of parameters need MIXED or ROW"
	}
	return v, err
}

// report logs the method and the risks of the server, once.
func (s *Sink) report(chosen choice, server serverSettings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reported == chosen {
		return
	}
	s.reported = chosen
	s.log.Info("rows are inserted by "+chosen.method.describe(),
		"sink", s.config.server(), "table", s.config.Table, "because", chosen.reason)
	if server.flush != 1 {
		s.log.Warn("the server may lose committed rows, and the events in them, when its machine fails",
			"sink", s.config.server(), "innodb_flush_log_at_trx_commit", server.flush, "hint", "set it to 1")
	}
}

// Missing implements sqlsink.Database.
func (s *Sink) Missing(ctx context.Context, c sqlsink.Conn, names []string) ([]string, error) {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quoteText(name)
	}
	rows, err := c.Query(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = "+quoteText(s.config.Database)+
		" AND table_name IN ("+strings.Join(quoted, ", ")+")")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(rows, func(row [][]byte) bool { return strings.EqualFold(string(row[0]), name) })
	}), nil
}

// CreateTables implements sqlsink.Database.
func (s *Sink) CreateTables(ctx context.Context, c sqlsink.Conn, statements []string) error {
	var errs []error
	for _, statement := range statements {
		errs = append(errs, c.Exec(ctx, statement))
	}
	return errors.Join(errs...)
}
