package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

var dialect = &sqlsink.Dialect{
	Quote:     quote,
	QuoteText: quoteText,
	Table:     func(name string) string { return name },
	Key:       func(name string) string { return name },
	CheckName: checkName,
	SameName:  strings.EqualFold,

	Now: "UTC_TIMESTAMP(6)",
	Later: func(d time.Duration) string {
		return fmt.Sprintf("UTC_TIMESTAMP(6) + INTERVAL %d MICROSECOND", d.Microseconds())
	},
	Age:             "TIMESTAMPDIFF(SECOND, committed, UTC_TIMESTAMP(6))",
	FingerprintsHex: "HEX(prints)",
	CutFingerprints: "LEFT(prints, 4 * %s)",
	Hex:             [2]string{"x'", "'"},
	AppendBytes:     func(to, b []byte) []byte { return appendText(append(to, "_binary"...), b) },
	ParseBytes:      func(b []byte) ([]byte, error) { return b, nil },
	ShareLock:       " LOCK IN SHARE MODE",
	ReplaceRange:    " ON DUPLICATE KEY UPDATE events = VALUES(events), epoch = VALUES(epoch), committed = VALUES(committed), prints = VALUES(prints)",

	Type:    sqlType,
	Accepts: func(c *sqlsink.TableColumn, t event.Type) bool { return slices.Contains(accepted[t], c.Type) },
	AlterType: func(name, typ string) string {
		return "MODIFY " + quote(name) + " " + typ
	},
	AlterNull: func(c *sqlsink.TableColumn) string {
		return "MODIFY " + quote(c.Name) + " " + c.FullType + " NULL"
	},
	Create:     createTarget,
	StateTable: func(name string) []string { return []string{stateTables[name]} },
}

// quote quotes the name of a table or a column.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func quoteText(text string) string { return string(appendText(nil, []byte(text))) }

// checkName rejects what cannot name a table or a column.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len([]rune(name)) > 64:
		return fmt.Errorf("%q is longer than 64 characters", name)
	case strings.HasSuffix(name, " ") || strings.ContainsRune(name, 0):
		return fmt.Errorf("%q ends in a space or contains a NUL, which no name may", name)
	}
	return nil
}

// stateTables create the tables of a sqlsink.Store. Names are bytes, because two
// that a collation takes for equal are two partitions.
var stateTables = map[string]string{
	sqlsink.OwnersTable: `CREATE TABLE IF NOT EXISTS perigee_owners (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  pipeline    VARBINARY(255)  NOT NULL,
  target      VARBINARY(255)  NOT NULL COMMENT 'table that the rows go to',
  ` + "`partition`" + ` VARBINARY(1024) NOT NULL,
  epoch       BIGINT UNSIGNED NOT NULL COMMENT 'raised by every takeover',
  owner       VARBINARY(512)  NOT NULL COMMENT 'host:process:writer',
  since       DATETIME(6)     NOT NULL COMMENT 'UTC',
  UNIQUE KEY name (pipeline, target, ` + "`partition`" + `)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='who may write what; see perigee_ranges'`,

	sqlsink.RangesTable: `CREATE TABLE IF NOT EXISTS perigee_ranges (
  owner     BIGINT UNSIGNED NOT NULL COMMENT 'perigee_owners.id',
  first     BIGINT UNSIGNED NOT NULL COMMENT 'position of the first event',
  events    BIGINT UNSIGNED NOT NULL,
  epoch     BIGINT UNSIGNED NOT NULL COMMENT 'of the owner that committed it',
  committed DATETIME(6)     NOT NULL COMMENT 'UTC',
  prints    LONGBLOB        NULL     COMMENT 'a fingerprint of 4 bytes, little endian, for each event',
  PRIMARY KEY (owner, first)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='events that are committed; deleting rows delivers them again'`,

	sqlsink.LeasesTable: `CREATE TABLE IF NOT EXISTS perigee_leases (
  pipeline    VARBINARY(255)  NOT NULL,
  target      VARBINARY(255)  NOT NULL COMMENT 'table that the rows go to',
  ` + "`partition`" + ` VARBINARY(1024) NOT NULL,
  worker      VARBINARY(512)  NOT NULL,
  until       DATETIME(6)     NOT NULL COMMENT 'UTC, by the clock of this server',
  PRIMARY KEY (pipeline, target, ` + "`partition`" + `)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='who should work on what; see perigee_owners for who may write'`,

	sqlsink.WorkersTable: `CREATE TABLE IF NOT EXISTS perigee_workers (
  pipeline VARBINARY(255) NOT NULL,
  target   VARBINARY(255) NOT NULL COMMENT 'table that the rows go to',
  worker   VARBINARY(512) NOT NULL,
  until    DATETIME(6)    NOT NULL COMMENT 'UTC, by the clock of this server',
  PRIMARY KEY (pipeline, target, worker)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='workers that are alive'`,

	sqlsink.UnitsTable: `CREATE TABLE IF NOT EXISTS perigee_units (
  id       BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  pipeline VARBINARY(255)  NOT NULL,
  target   VARBINARY(255)  NOT NULL COMMENT 'table that the rows go to',
  name     VARBINARY(1024) NOT NULL,
  epoch    BIGINT UNSIGNED NOT NULL COMMENT 'raised by every takeover',
  owner    VARBINARY(512)  NOT NULL COMMENT 'host:process:unit',
  since    DATETIME(6)     NOT NULL COMMENT 'UTC',
  last     BIGINT UNSIGNED NOT NULL COMMENT 'number of the last note',
  UNIQUE KEY name (pipeline, target, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='units of the state of pipelines; see perigee_notes'`,

	sqlsink.NotesTable: `CREATE TABLE IF NOT EXISTS perigee_notes (
  unit   BIGINT UNSIGNED NOT NULL COMMENT 'perigee_units.id',
  number BIGINT UNSIGNED NOT NULL,
  part   INT UNSIGNED    NOT NULL COMMENT 'from 0',
  parts  INT UNSIGNED    NOT NULL COMMENT 'that the note has',
  sum    BIGINT UNSIGNED NOT NULL COMMENT 'checksum of the note and the one before',
  bytes  INT UNSIGNED    NOT NULL COMMENT 'of data',
  data   LONGBLOB        NOT NULL,
  PRIMARY KEY (unit, number, part)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='what deliveries changed in units, until all copies have it; deleting rows loses state'`,
}

// createTarget is the statement that creates the target.
func createTarget(t *sqlsink.Target) []string {
	lines := t.Definitions()
	for _, index := range t.SplitIndexes() {
		lines = append(lines, "KEY ("+t.QuoteAll(index)+")")
	}
	return []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4", t.Name, strings.Join(lines, ", "))}
}

// sqlType is the type of a column that the sink creates.
func sqlType(c Column) string {
	if c.SQL != "" {
		return c.SQL
	}
	switch event.Type(c.Type) {
	case event.Bool:
		return "BOOLEAN"
	case event.Int32:
		return "INT"
	case event.Int64:
		return "BIGINT"
	case event.Float64:
		return "DOUBLE"
	case event.Decimal:
		return "DECIMAL(38,9)"
	case event.Timestamp:
		return "DATETIME(6)"
	case event.JSON:
		return "JSON"
	}
	return "TEXT"
}

var (
	integers = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}
	texts    = []string{"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
	floats   = []string{"float", "double"}
)

// accepted lists the types of columns that a type of event columns may go to: they
// hold any of its values or reject it. None changes a value silently, but for the
// precision of numbers that are not decimals.
var accepted = map[event.Type][]string{
	event.Bool:    slices.Concat(integers, texts),
	event.Int32:   slices.Concat(integers, texts, floats, []string{"decimal"}),
	event.Int64:   slices.Concat(integers, texts, floats, []string{"decimal"}),
	event.Float64: slices.Concat(texts, floats, []string{"decimal"}),
	event.Decimal: slices.Concat(texts, floats, []string{"decimal"}),
	event.String: slices.Concat(texts, []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob",
		"enum", "set", "uuid", "inet4", "inet6", "date", "time", "datetime", "timestamp", "year", "json"}),
	event.Timestamp: slices.Concat(texts, []string{"datetime", "timestamp"}),
	event.JSON:      slices.Concat(texts, []string{"json"}),
}
