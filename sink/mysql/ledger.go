package mysql

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// ledger is the tables beside the target. Names are bytes, because two that a
// collation takes for equal are two partitions.
var ledger = map[string]string{
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
	for name, create := range ledger {
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
func (w *writer) takeOver(ctx context.Context) (event.Ranges, error) {
	s := w.sink
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var before string
	err = conn.QueryRowContext(ctx, "SELECT owner FROM perigee_owners WHERE pipeline = ? AND target = ? AND `partition` = ?",
		s.pipeline, s.config.Table, w.partition).Scan(&before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	if err := w.raise(ctx, conn, raiseOwner, s.pipeline, s.config.Table, w.partition, w.token); err != nil {
		return nil, err
	}
	if before != "" {
		s.evict(ctx, conn, before)
	}
	return w.readRanges(ctx, conn)
}

const raiseOwner = `INSERT INTO perigee_owners (pipeline, target, ` + "`partition`" + `, epoch, owner, since)
	VALUES (?, ?, ?, 1, ?, UTC_TIMESTAMP(6))
	ON DUPLICATE KEY UPDATE epoch = epoch + 1, owner = VALUES(owner), since = VALUES(since)`

// renew takes the partition over from the writer itself, and only from itself.
// The commit also makes durable whatever is read after it: a server may show a
// transaction before it is on disk, but not before one that follows it is.
func (w *writer) renew(ctx context.Context) (event.Ranges, error) {
	conn, err := w.sink.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	err = w.raise(ctx, conn, "UPDATE perigee_owners SET epoch = epoch + 1 WHERE id = ? AND owner = ?", w.id, w.token)
	if err != nil {
		return nil, err
	}
	// Of its own connections, those it has lost still hold locks.
	w.forgetAll()
	w.sink.evict(ctx, conn, w.token)
	return w.readRanges(ctx, conn)
}

// raise raises the epoch by a statement that is a transaction of its own: a
// worker that is frozen right after it holds nothing.
func (w *writer) raise(ctx context.Context, conn *sql.Conn, statement string, args ...any) error {
	result, err := conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, sink.ErrFenced)
	}
	var id, epoch uint64
	err = conn.QueryRowContext(ctx, "SELECT id, epoch FROM perigee_owners WHERE pipeline = ? AND target = ? AND `partition` = ? AND owner = ?",
		w.sink.pipeline, w.sink.config.Table, w.partition, w.token).Scan(&id, &epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return sink.ErrFenced
	}
	if err == nil {
		w.id, w.epoch = id, epoch
	}
	return err
}

// readRanges reads what is committed and starts the writer's history with it.
func (w *writer) readRanges(ctx context.Context, conn *sql.Conn) (event.Ranges, error) {
	rows, err := conn.QueryContext(ctx, `SELECT first, events, TIMESTAMPDIFF(SECOND, committed, UTC_TIMESTAMP(6)), prints
		FROM perigee_ranges WHERE owner = ? ORDER BY first`, w.id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ranges event.Ranges
	var past history
	now := time.Now()
	for rows.Next() {
		var r event.Range
		var age int64
		var prints sql.RawBytes
		if err := rows.Scan(&r.First, &r.Count, &age, &prints); err != nil {
			return nil, err
		}
		if r.Prints, err = decodePrints(r, prints); err != nil {
			return nil, err
		}
		past.add(r, now.Add(-time.Duration(age)*time.Second))
		ranges.Add(r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	w.past = past
	w.done = nil
	for _, r := range ranges {
		w.done.Add(event.Range{First: r.First, Count: r.Count})
	}
	return ranges, nil
}

func decodePrints(r event.Range, blob []byte) ([]uint32, error) {
	if len(blob) == 0 {
		return nil, nil
	}
	if uint64(len(blob)) != 4*r.Count {
		return nil, &sink.PermanentError{
			Err:  fmt.Errorf("perigee_ranges has %d bytes of fingerprints for the %d events of %v", len(blob), r.Count, r),
			Hint: "the table was changed by hand; restore the row or set its prints to NULL",
		}
	}
	prints := make([]uint32, r.Count)
	for i := range prints {
		prints[i] = binary.LittleEndian.Uint32(blob[4*i:])
	}
	return prints, nil
}

// appendFence appends an expression that is the writer's epoch as long as it is
// the owner's and the condition holds, and shares a lock on that until the
// transaction ends. Otherwise it is NULL, which no epoch column takes.
func (w *writer) appendFence(b []byte, condition string) []byte {
	b = append(b, "(SELECT epoch FROM perigee_owners WHERE id = "...)
	b = strconv.AppendUint(b, w.id, 10)
	b = append(b, " AND epoch = "...)
	b = strconv.AppendUint(b, w.epoch, 10)
	return append(append(b, condition...), " LOCK IN SHARE MODE)"...)
}

// appendRanges appends the statement that records ranges, checks the fence and,
// where one is given as " AND …", a condition.
func (w *writer) appendRanges(b []byte, ranges []event.Range, condition string) []byte {
	b = append(b, "INSERT INTO perigee_ranges (owner, first, events, epoch, committed, prints) VALUES "...)
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, '('), w.id, 10)
		b = strconv.AppendUint(append(b, ','), r.First, 10)
		b = strconv.AppendUint(append(b, ','), r.Count, 10)
		b = w.appendFence(append(b, ','), condition)
		b = append(b, ",UTC_TIMESTAMP(6),"...)
		b = append(appendPrints(b, r.Prints), ')')
	}
	return b
}

func appendPrints(b []byte, prints []uint32) []byte {
	if len(prints) == 0 {
		return append(b, "NULL"...)
	}
	const digits = "0123456789abcdef"
	b = append(b, "x'"...)
	for _, print := range prints {
		for range 4 {
			b = append(b, digits[print>>4&15], digits[print&15])
			print >>= 8
		}
	}
	return append(b, '\'')
}

// owned tells whether the writer is still the owner.
func (w *writer) owned(ctx context.Context, conn *sql.Conn) error {
	var owned bool
	err := conn.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM perigee_owners WHERE id = ? AND epoch = ?", w.id, w.epoch).Scan(&owned)
	if err == nil && !owned {
		return sink.ErrFenced
	}
	return err
}
