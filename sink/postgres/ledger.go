package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

const (
	ownersTable  = "perigee_owners"
	rangesTable  = "perigee_ranges"
	leasesTable  = "perigee_leases"
	workersTable = "perigee_workers"
)

// The ledger is the tables beside the target. Positions have no sign, so they
// are no BIGINT.
var ledgerTables = []struct{ name, columns, comment string }{
	{ownersTable, `(
  id        INTEGER     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pipeline  TEXT        NOT NULL,
  target    TEXT        NOT NULL,
  partition TEXT        NOT NULL,
  epoch     BIGINT      NOT NULL,
  owner     TEXT        NOT NULL,
  since     TIMESTAMPTZ NOT NULL,
  UNIQUE (pipeline, target, partition))`,
		"who may write what: every takeover raises the epoch; see perigee_ranges"},
	{rangesTable, `(
  owner     INTEGER     NOT NULL,
  first     NUMERIC(20) NOT NULL,
  events    NUMERIC(20) NOT NULL,
  epoch     BIGINT      NOT NULL,
  committed TIMESTAMPTZ NOT NULL,
  prints    BYTEA,
  PRIMARY KEY (owner, first))`,
		"events of perigee_owners.id that are committed, with a fingerprint of 4 bytes for each; deleting rows delivers them again"},
	{leasesTable, `(
  pipeline  TEXT        NOT NULL,
  target    TEXT        NOT NULL,
  partition TEXT        NOT NULL,
  worker    TEXT        NOT NULL,
  until     TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (pipeline, target, partition))`,
		"who should work on what; see perigee_owners for who may write"},
	{workersTable, `(
  pipeline  TEXT        NOT NULL,
  target    TEXT        NOT NULL,
  worker    TEXT        NOT NULL,
  until     TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (pipeline, target, worker))`,
		"workers that are alive"},
}

// prepareLedger makes the tables that are absent. It asks first: a role may be
// allowed to write and not to create.
func (s *Sink) prepareLedger(ctx context.Context, c *conn) error {
	absent, err := s.absentTables(ctx, c)
	if err != nil || len(absent) == 0 {
		return err
	}
	var statements []string
	for _, t := range ledgerTables {
		name := s.config.in(t.name)
		statements = append(statements, "CREATE TABLE IF NOT EXISTS "+name+" "+t.columns,
			"COMMENT ON TABLE "+name+" IS "+quoteText(t.comment))
	}
	// Fingerprints don't get smaller, and the server would try.
	statements = append(statements, "ALTER TABLE "+s.config.in(rangesTable)+" ALTER COLUMN prints SET STORAGE EXTERNAL")
	return c.make(ctx, statements)
}

// absentTables lists the tables of the ledger that are not there.
func (s *Sink) absentTables(ctx context.Context, c *conn) ([]string, error) {
	var queries []string
	for _, t := range ledgerTables {
		queries = append(queries, fmt.Sprintf("SELECT %s WHERE to_regclass(%s) IS NULL", quoteText(t.name), quoteText(s.config.in(t.name))))
	}
	rows, err := c.do(ctx, strings.Join(queries, " UNION ALL "))
	var names []string
	for _, row := range rows {
		names = append(names, string(row[0]))
	}
	return names, err
}

// A book is one partition in the ledger, for the writer that has taken it over.
// It implements positions.Store.
type book struct {
	sink      *Sink
	partition string
	plan      *plan
	token     string // names the writer in perigee_owners
	locks     string // the class of its advisory locks, as they are listed: see evict
	lockClass string // the same, as they are asked for
	id        int64  // of the row in perigee_owners
	epoch     uint64
}

// takeOver makes the writer the owner of its partition and returns what is
// committed. Whatever another owner has under way by then is fenced: it holds
// the row's shared lock, and is waited for, or will not get it any more.
func (b *book) takeOver(ctx context.Context) ([]positions.Entry, error) {
	return b.raise(ctx, b.sink.raiseOwner(b.partition, b.token)+" RETURNING id, epoch")
}

// raiseOwner is the statement that makes owner the one of a partition.
func (s *Sink) raiseOwner(partition, owner string) string {
	return fmt.Sprintf(`INSERT INTO %s AS o (pipeline, target, partition, epoch, owner, since)
		VALUES (%s, 1, %s, clock_timestamp())
		ON CONFLICT (pipeline, target, partition) DO UPDATE SET epoch = o.epoch + 1, owner = EXCLUDED.owner, since = EXCLUDED.since`,
		s.config.in(ownersTable), s.literals(partition), quoteText(owner))
}

// literals are pipeline, table and partition, as the ledger names them.
func (s *Sink) literals(partition string) string {
	return strings.Join([]string{s.scope(), quoteText(nameText(partition))}, ", ")
}

// scope is pipeline and table.
func (s *Sink) scope() string {
	return quoteText(nameText(s.pipeline)) + ", " + quoteText(s.config.Table)
}

// where is the condition that finds the rows of the pipeline and the table.
func (s *Sink) where() string { return "(pipeline, target) = (" + s.scope() + ")" }

// nameText is a name as text, which holds neither a NUL nor what is no UTF-8.
func nameText(name string) string {
	if utf8.ValidString(name) && !strings.ContainsRune(name, 0) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// Renew implements positions.Store. The commit also makes durable whatever is read
// after it.
func (b *book) Renew(ctx context.Context) ([]positions.Entry, error) {
	entries, err := b.raise(ctx, fmt.Sprintf("UPDATE %s SET epoch = epoch + 1 WHERE id = %d AND owner = %s RETURNING id, epoch",
		b.sink.config.in(ownersTable), b.id, quoteText(b.token)))
	return entries, b.sink.explain("finding out what is committed", err)
}

// raise runs a statement that returns the writer's row, raised; frees what the
// fenced still hold, and reads what is committed. It comes again when it was
// itself ended: whoever evicts may hit a connection that has just become idle.
func (b *book) raise(ctx context.Context, statement string) ([]positions.Entry, error) {
	for again := true; ; again = false {
		c, err := b.sink.pool.take(ctx)
		if err != nil {
			return nil, err
		}
		entries, err := b.raiseOn(ctx, c, statement)
		ended := c.IsClosed()
		b.sink.pool.give(ctx, c)
		if !ended || !again || ctx.Err() != nil {
			return entries, err
		}
	}
}

func (b *book) raiseOn(ctx context.Context, c *conn, statement string) ([]positions.Entry, error) {
	rows, err := c.do(ctx, statement)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, sink.ErrFenced
	}
	if b.id, err = strconv.ParseInt(string(rows[0][0]), 10, 32); err != nil {
		return nil, err
	}
	if b.epoch, err = strconv.ParseUint(string(rows[0][1]), 10, 64); err != nil {
		return nil, err
	}
	if err := b.evict(ctx, c); err != nil {
		return nil, err
	}
	return b.sink.readEntries(ctx, c, b.id)
}

// evict ends the connections that have a transaction of the partition under way:
// a worker that is frozen in the middle of its rows would keep their keys locked.
// They are known by an advisory lock, of the oid of perigee_ranges and the id.
func (b *book) evict(ctx context.Context, c *conn) error {
	_, err := c.do(ctx, fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 2 AND classid = %s AND objid = %d AND pid <> pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, b.locks, b.id))
	if judge(err) == permanent {
		b.sink.log.Warn("a worker that lost the partition inside a transaction can't be ended; its locks last as long as it does",
			"partition", b.partition, "error", err, "hint", "let all workers use the same role")
		return nil
	}
	return err
}

// readEntries reads what is committed of the owner with the id.
func (s *Sink) readEntries(ctx context.Context, c *conn, id int64) ([]positions.Entry, error) {
	rows, err := c.do(ctx, fmt.Sprintf(`SELECT first, events, extract(epoch FROM clock_timestamp() - committed)::bigint, prints
		FROM %s WHERE owner = %d ORDER BY first`, s.config.in(rangesTable), id))
	if err != nil {
		return nil, err
	}
	var entries []positions.Entry
	for _, row := range rows {
		e, err := readEntry(row)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// readEntry reads first, events, age and prints.
func readEntry(row [][]byte) (e positions.Entry, err error) {
	if e.Range.First, err = strconv.ParseUint(string(row[0]), 10, 64); err != nil {
		return e, err
	}
	if e.Range.Count, err = strconv.ParseUint(string(row[1]), 10, 64); err != nil {
		return e, err
	}
	age, err := strconv.ParseInt(string(row[2]), 10, 64)
	if err != nil {
		return e, err
	}
	e.Age = time.Duration(age) * time.Second
	prints, err := hex.DecodeString(strings.TrimPrefix(string(row[3]), `\x`))
	if err != nil {
		return e, err
	}
	e.Range.Prints, err = positions.DecodePrints(e.Range, prints)
	return e, err
}

// appendFence appends an expression that is the writer's epoch as long as it is
// the owner's, and shares a lock on that until the transaction ends. For a
// fenced writer it is NULL, which no epoch column takes.
func (b *book) appendFence(to []byte) []byte {
	to = append(to, "(SELECT epoch FROM "...)
	to = append(to, b.sink.config.in(ownersTable)...)
	to = strconv.AppendInt(append(to, " WHERE id = "...), b.id, 10)
	to = strconv.AppendUint(append(to, " AND epoch = "...), b.epoch, 10)
	return append(to, " FOR SHARE)"...)
}

// appendRanges appends the statement that records ranges and checks the fence.
func (b *book) appendRanges(to []byte, ranges []event.Range) []byte {
	to = append(to, "INSERT INTO "...)
	to = append(to, b.sink.config.in(rangesTable)...)
	to = append(to, " (owner, first, events, epoch, committed, prints) VALUES "...)
	for i, r := range ranges {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendInt(append(to, '('), b.id, 10)
		to = strconv.AppendUint(append(to, ','), r.First, 10)
		to = strconv.AppendUint(append(to, ','), r.Count, 10)
		to = b.appendFence(append(to, ','))
		to = append(to, ",clock_timestamp(),"...)
		to = append(appendPrints(to, r.Prints), ')')
	}
	return to
}

func appendPrints(to []byte, prints []uint32) []byte {
	if len(prints) == 0 {
		return append(to, "NULL"...)
	}
	return append(positions.AppendHex(append(to, `'\x`...), prints), '\'')
}

// Compact implements positions.Store. It grows the first row and deletes the others.
// The first row is inserted, not updated: an update of a row that a later owner
// has folded away would find nothing and so not meet the fence.
func (b *book) Compact(ctx context.Context, r event.Range) error {
	c, err := b.sink.pool.take(ctx)
	if err != nil {
		return err
	}
	defer b.sink.pool.give(ctx, c)
	statement := b.appendRanges([]byte("BEGIN;"), []event.Range{r})
	_, err = c.do(ctx, string(statement)+` ON CONFLICT (owner, first) DO UPDATE
		SET events = EXCLUDED.events, epoch = EXCLUDED.epoch, committed = EXCLUDED.committed, prints = EXCLUDED.prints;`+
		fmt.Sprintf("DELETE FROM %s WHERE owner = %d AND first > %d AND first < %d;COMMIT", b.sink.config.in(rangesTable), b.id, r.First, r.End()))
	return err
}

// IsCommitted implements positions.Store.
func (b *book) IsCommitted(ctx context.Context, r event.Range) (bool, error) {
	c, err := b.sink.pool.take(ctx)
	if err != nil {
		return false, err
	}
	defer b.sink.pool.give(ctx, c)
	rows, err := c.do(ctx, fmt.Sprintf(`SELECT COALESCE((SELECT first + events >= %d FROM %s WHERE owner = o.id AND first <= %d
		ORDER BY first DESC LIMIT 1), FALSE) FROM %s AS o WHERE id = %d AND epoch = %d AND owner = %s`,
		r.End(), b.sink.config.in(rangesTable), r.First, b.sink.config.in(ownersTable), b.id, b.epoch, quoteText(b.token)))
	if err == nil && len(rows) == 0 {
		err = sink.ErrFenced
	}
	return err == nil && string(rows[0][0]) == "t", err
}

// OutcomeUnknown implements positions.Store. A fenced writer learns nothing more.
func (b *book) OutcomeUnknown(err error) bool { return judge(err) == unknown && !fenced(err) }
