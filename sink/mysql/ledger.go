package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// ledgerTables are the tables beside the target. Names are bytes, because two that a
// collation takes for equal are two partitions.
var ledgerTables = map[string]string{
	"perigee_owners": ownersTable, "perigee_ranges": rangesTable,
	"perigee_leases": leasesTable, "perigee_workers": workersTable,
}

const (
	ownersTable = `CREATE TABLE IF NOT EXISTS perigee_owners (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  pipeline    VARBINARY(255)  NOT NULL,
  target      VARBINARY(255)  NOT NULL COMMENT 'table that the rows go to',
  ` + "`partition`" + ` VARBINARY(1024) NOT NULL,
  epoch       BIGINT UNSIGNED NOT NULL COMMENT 'raised by every takeover',
  owner       VARBINARY(512)  NOT NULL COMMENT 'host:process:writer',
  since       DATETIME(6)     NOT NULL COMMENT 'UTC',
  UNIQUE KEY name (pipeline, target, ` + "`partition`" + `)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='who may write what; see perigee_ranges'`

	rangesTable = `CREATE TABLE IF NOT EXISTS perigee_ranges (
  owner     BIGINT UNSIGNED NOT NULL COMMENT 'perigee_owners.id',
  first     BIGINT UNSIGNED NOT NULL COMMENT 'position of the first event',
  events    BIGINT UNSIGNED NOT NULL,
  epoch     BIGINT UNSIGNED NOT NULL COMMENT 'of the owner that committed it',
  committed DATETIME(6)     NOT NULL COMMENT 'UTC',
  prints    LONGBLOB        NULL     COMMENT 'a fingerprint of 4 bytes, little endian, for each event',
  PRIMARY KEY (owner, first)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='events that are committed; deleting rows delivers them again'`
)

// prepareLedger makes the tables that are absent. It asks first: an account may
// be allowed to write and not to create.
func prepareLedger(ctx context.Context, conn *sql.Conn, database string) error {
	for name, create := range ledgerTables {
		there, err := present(ctx, conn, database, name)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		if _, err := conn.ExecContext(ctx, create); err != nil {
			return err
		}
	}
	return nil
}

func present(ctx context.Context, conn *sql.Conn, database, table string) (there bool, err error) {
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
		database, table).Scan(&there)
	return there, err
}

// takeOver makes the writer the owner of its partition and returns what is
// committed. Whatever another owner has under way by then is fenced: it holds
// the row's shared lock, and is waited for, or will not get it any more.
func (b *book) takeOver(ctx context.Context) ([]positions.Entry, error) {
	s := b.sink
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var before string
	err = conn.QueryRowContext(ctx, "SELECT owner FROM perigee_owners WHERE pipeline = ? AND target = ? AND `partition` = ?",
		s.pipeline, s.config.Table, b.partition).Scan(&before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	if err := b.raise(ctx, conn, raiseOwner, s.pipeline, s.config.Table, b.partition, b.token); err != nil {
		return nil, err
	}
	if before != "" {
		s.evict(ctx, conn, before)
	}
	return b.readEntries(ctx, conn)
}

const raiseOwner = `INSERT INTO perigee_owners (pipeline, target, ` + "`partition`" + `, epoch, owner, since)
	VALUES (?, ?, ?, 1, ?, UTC_TIMESTAMP(6))
	ON DUPLICATE KEY UPDATE epoch = epoch + 1, owner = VALUES(owner), since = VALUES(since)`

// Renew implements positions.Store. The commit also makes durable whatever is read after it: a server may show a
// transaction before it is on disk, but not before one that follows it is.
func (b *book) Renew(ctx context.Context) ([]positions.Entry, error) {
	conn, err := b.sink.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	err = b.raise(ctx, conn, "UPDATE perigee_owners SET epoch = epoch + 1 WHERE id = ? AND owner = ?", b.id, b.token)
	if err != nil {
		return nil, err
	}
	// Of its own connections, those it has lost still hold locks.
	b.forgetAll()
	b.sink.evict(ctx, conn, b.token)
	return b.readEntries(ctx, conn)
}

// raise raises the epoch by a statement that is a transaction of its own: a
// worker that is frozen right after it holds nothing.
func (b *book) raise(ctx context.Context, conn *sql.Conn, statement string, args ...any) error {
	result, err := conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, sink.ErrFenced)
	}
	var id, epoch uint64
	err = conn.QueryRowContext(ctx, "SELECT id, epoch FROM perigee_owners WHERE pipeline = ? AND target = ? AND `partition` = ? AND owner = ?",
		b.sink.pipeline, b.sink.config.Table, b.partition, b.token).Scan(&id, &epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return sink.ErrFenced
	}
	if err == nil {
		b.id, b.epoch = id, epoch
	}
	return err
}

// readEntries reads what is committed.
func (b *book) readEntries(ctx context.Context, conn *sql.Conn) ([]positions.Entry, error) {
	rows, err := conn.QueryContext(ctx, `SELECT first, events, TIMESTAMPDIFF(SECOND, committed, UTC_TIMESTAMP(6)), prints
		FROM perigee_ranges WHERE owner = ? ORDER BY first`, b.id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var entries []positions.Entry
	for rows.Next() {
		var e positions.Entry
		var age int64
		var prints sql.RawBytes
		if err := rows.Scan(&e.Range.First, &e.Range.Count, &age, &prints); err != nil {
			return nil, err
		}
		if e.Range.Prints, err = positions.DecodePrints(e.Range, prints); err != nil {
			return nil, err
		}
		e.Age = time.Duration(age) * time.Second
		entries = append(entries, e)
	}
	return entries, rows.Err()
}

// appendFence appends an expression that is the writer's epoch as long as it is
// the owner's and the condition holds, and shares a lock on that until the
// transaction ends. Otherwise it is NULL, which no epoch column takes.
func (b *book) appendFence(to []byte, condition string) []byte {
	to = append(to, "(SELECT epoch FROM perigee_owners WHERE id = "...)
	to = strconv.AppendUint(to, b.id, 10)
	to = append(to, " AND epoch = "...)
	to = strconv.AppendUint(to, b.epoch, 10)
	return append(append(to, condition...), " LOCK IN SHARE MODE)"...)
}

// appendRanges appends the statement that records ranges, checks the fence and,
// where one is given as " AND …", a condition.
func (b *book) appendRanges(to []byte, ranges []event.Range, condition string) []byte {
	to = append(to, "INSERT INTO perigee_ranges (owner, first, events, epoch, committed, prints) VALUES "...)
	for i, r := range ranges {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendUint(append(to, '('), b.id, 10)
		to = strconv.AppendUint(append(to, ','), r.First, 10)
		to = strconv.AppendUint(append(to, ','), r.Count, 10)
		to = b.appendFence(append(to, ','), condition)
		to = append(to, ",UTC_TIMESTAMP(6),"...)
		to = append(appendPrints(to, r.Prints), ')')
	}
	return to
}

func appendPrints(to []byte, prints []uint32) []byte {
	if len(prints) == 0 {
		return append(to, "NULL"...)
	}
	return append(positions.AppendHex(append(to, "x'"...), prints), '\'')
}

// Compact implements positions.Store. It grows the first row and deletes the others.
// The first row is inserted, not updated: an update of a row that a later owner
// has folded away would find nothing and so not meet the fence.
func (b *book) Compact(ctx context.Context, r event.Range) error {
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer b.keep(s)
	text := b.appendRanges([]byte(startStatement+";"), []event.Range{r}, "")
	text = append(text, " ON DUPLICATE KEY UPDATE events = VALUES(events), epoch = VALUES(epoch),"+
		" committed = VALUES(committed), prints = VALUES(prints);DELETE FROM perigee_ranges WHERE owner = "...)
	text = strconv.AppendUint(text, b.id, 10)
	text = strconv.AppendUint(append(text, " AND first > "...), r.First, 10)
	text = strconv.AppendUint(append(text, " AND first < "...), r.End(), 10)
	text = append(text, commitStatement...)
	if err = send(ctx, s.conn, text); err != nil {
		rollBack(ctx, s.conn)
	}
	return err
}

// owned tells whether the writer is still the owner.
func (b *book) owned(ctx context.Context, conn *sql.Conn) error {
	var owned bool
	err := conn.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM perigee_owners WHERE id = ? AND epoch = ?", b.id, b.epoch).Scan(&owned)
	if err == nil && !owned {
		return sink.ErrFenced
	}
	return err
}
