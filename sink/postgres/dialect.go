package postgres

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// newDialect returns the dialect of a sink whose tables are in schema.
func newDialect(schema string) *sqlsink.Dialect {
	table := func(name string) string { return quote(schema) + "." + quote(name) }
	return &sqlsink.Dialect{
		Quote:     quote,
		QuoteText: quoteText,
		Table:     table,
		Key:       keyText,
		CheckName: checkName,
		SameName:  func(a, b string) bool { return a == b },

		Now: "clock_timestamp()",
		Later: func(d time.Duration) string {
			return fmt.Sprintf("clock_timestamp() + %d * interval '1 microsecond'", d.Microseconds())
		},
		Age:              "extract(epoch FROM clock_timestamp() - committed)::bigint",
		FingerprintsHex:  "encode(prints, 'hex')",
		CutFingerprints:  "substring(prints FOR (4 * %s)::int)",
		Hex:              [2]string{`'\x`, "'"},
		AppendBytes:      appendBytes,
		ParseBytes:       parseBytes,
		ShareLock:        " FOR SHARE",
		IgnoreDuplicates: " ON CONFLICT DO NOTHING",
		ReplaceRange: ` ON CONFLICT (owner, first) DO UPDATE
			SET events = EXCLUDED.events, epoch = EXCLUDED.epoch, committed = EXCLUDED.committed, prints = EXCLUDED.prints`,

		Type: sqlType,
		Accepts: func(c *sqlsink.TableColumn, t event.Type) bool {
			return slices.Contains(accepted[t], c.Type) || c.Enum && t == event.String
		},
		AlterType:  func(name, typ string) string { return "ALTER COLUMN " + quote(name) + " TYPE " + typ },
		AlterNull:  func(c *sqlsink.TableColumn) string { return "ALTER COLUMN " + quote(c.Name) + " DROP NOT NULL" },
		Create:     createTarget,
		StateTable: func(name string) []string { return createState(table(name), name) },
	}
}

// quote quotes the name of a table or a column.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText quotes a text. The server reads the backslash as itself: see session.
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// appendBytes appends bytes as a value. The text of a statement cannot have all bytes; base64 costs
// the server as much as its own hexadecimal form and is a third shorter.
func appendBytes(to, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(to, "decode('"...), b), "','base64')"...)
}

// parseBytes parses the text of a bytea: see bytea_output in session.
func parseBytes(b []byte) ([]byte, error) {
	if !bytes.HasPrefix(b, []byte(`\x`)) {
		return nil, fmt.Errorf("the server returned %.10q…, not bytes in hexadecimal", b)
	}
	n, err := hex.Decode(b, b[2:])
	return b[:n], err
}

// keyText is a name as text, which cannot contain a NUL or invalid UTF-8.
func keyText(name string) string {
	if utf8.ValidString(name) && !strings.ContainsRune(name, 0) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// maxName is the length to which the server cuts names, silently.
const maxName = 63

// checkName rejects what cannot name a table or a column.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > maxName:
		return fmt.Errorf("%q is longer than %d bytes", name, maxName)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%q contains a NUL, which no name may", name)
	}
	return nil
}

// stateTables are the columns of a sqlsink.Store's tables, and what they hold.
// Positions are unsigned, so that BIGINT is too small for them.
var stateTables = map[string]struct{ columns, comment string }{
	sqlsink.OwnersTable: {`(
  id        INTEGER     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pipeline  TEXT        NOT NULL,
  target    TEXT        NOT NULL,
  partition TEXT        NOT NULL,
  epoch     BIGINT      NOT NULL,
  owner     TEXT        NOT NULL,
  since     TIMESTAMPTZ NOT NULL,
  UNIQUE (pipeline, target, partition))`,
		"who may write what: every takeover raises the epoch; see perigee_ranges"},
	sqlsink.RangesTable: {`(
  owner     INTEGER     NOT NULL,
  first     NUMERIC(20) NOT NULL,
  events    NUMERIC(20) NOT NULL,
  epoch     BIGINT      NOT NULL,
  committed TIMESTAMPTZ NOT NULL,
  prints    BYTEA,
  PRIMARY KEY (owner, first))`,
		"events of perigee_owners.id that are committed, with a fingerprint of 4 bytes for each; deleting rows delivers them again"},
	sqlsink.LeasesTable: {`(
  pipeline  TEXT        NOT NULL,
  target    TEXT        NOT NULL,
  partition TEXT        NOT NULL,
  worker    TEXT        NOT NULL,
  until     TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (pipeline, target, partition))`,
		"who should work on what; see perigee_owners for who may write"},
	sqlsink.WorkersTable: {`(
  pipeline  TEXT        NOT NULL,
  target    TEXT        NOT NULL,
  worker    TEXT        NOT NULL,
  until     TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (pipeline, target, worker))`,
		"workers that are alive"},
	sqlsink.UnitsTable: {`(
  id        INTEGER     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pipeline  TEXT        NOT NULL,
  target    TEXT        NOT NULL,
  name      TEXT        NOT NULL,
  epoch     BIGINT      NOT NULL,
  owner     TEXT        NOT NULL,
  since     TIMESTAMPTZ NOT NULL,
  last      BIGINT      NOT NULL,
  UNIQUE (pipeline, target, name))`,
		"units of the state of pipelines, with the number of the last note; see perigee_notes"},
	sqlsink.NotesTable: {`(
  unit      INTEGER     NOT NULL,
  number    BIGINT      NOT NULL,
  part      INTEGER     NOT NULL,
  parts     INTEGER     NOT NULL,
  sum       NUMERIC(20) NOT NULL,
  bytes     INTEGER     NOT NULL,
  data      BYTEA       NOT NULL,
  PRIMARY KEY (unit, number, part))`,
		"what deliveries changed in perigee_units.id, until all copies have it; deleting rows loses state"},
}

// incompressible are the columns whose values do not compress; the server would try.
var incompressible = map[string]string{sqlsink.RangesTable: "prints", sqlsink.NotesTable: "data"}

func createState(quoted, name string) []string {
	statements := []string{
		"CREATE TABLE IF NOT EXISTS " + quoted + " " + stateTables[name].columns,
		"COMMENT ON TABLE " + quoted + " IS " + quoteText(stateTables[name].comment),
	}
	if column := incompressible[name]; column != "" {
		statements = append(statements, "ALTER TABLE "+quoted+" ALTER COLUMN "+column+" SET STORAGE EXTERNAL")
	}
	return statements
}

// createTarget is the statements that create the target.
func createTarget(t *sqlsink.Target) []string {
	statements := []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s)", t.Name, strings.Join(t.Definitions(), ", "))}
	for _, index := range t.SplitIndexes() {
		name := t.Table + "_" + strings.Join(index, "_")
		statements = append(statements, fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (%s)",
			quote(name[:min(len(name), maxName)]), t.Name, t.QuoteAll(index)))
	}
	return statements
}

// sqlType is the type of a column that the sink creates.
func sqlType(c sqlsink.Column) string {
	if c.SQL != "" {
		return c.SQL
	}
	switch event.Type(c.Type) {
	case event.Bool:
		return "BOOLEAN"
	case event.Int32:
		return "INTEGER"
	case event.Int64:
		return "BIGINT"
	case event.Float64:
		return "DOUBLE PRECISION"
	case event.Decimal:
		return "NUMERIC"
	case event.Timestamp:
		return "TIMESTAMPTZ"
	case event.JSON:
		return "JSONB"
	}
	return "TEXT"
}

var (
	texts   = []string{"text", "varchar", "bpchar", "citext"}
	numbers = []string{"int2", "int4", "int8", "numeric", "float4", "float8"}
)

// accepted lists the types of columns that a type of event columns may go to: they
// hold any of its values or reject it. None changes a value silently, but for the
// precision of numbers that are not decimals.
var accepted = map[event.Type][]string{
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
