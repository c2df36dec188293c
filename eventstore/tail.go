//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/sqltext"
)

const (
	// tailInterval is the time that a tail waits after it has sent all rows, so that one
	// query covers several appends.
	tailInterval = 100 * time.Millisecond
	// tailFiles is the number of sealed log files kept for a slow reader.
	tailFiles = 4
	// storedRowsMax and storedBytesMax bound the existing rows that a tail sends first.
	storedRowsMax  = 10_000
	storedBytesMax = 16 << 20
	// tailHold is the time that sealed log files are kept for a reader that takes no rows.
	tailHold = 10 * time.Second
)

// Tail calls emit with the rows appended to a table from now on, in append order. It returns
// nil when ctx ends or the store is closed. It first calls emit once without rows to report
// that it has begun. A batch fits into memory.
//
// A slow emit delays only this tail. Log files that are sealed meanwhile are kept for it, but
// only a few and for a limited time. After that, rows are skipped and the next batch has
// Skipped set.
func (s *Store) Tail(ctx context.Context, q catalog.TailRequest, emit func(*catalog.TailBatch) error) error {
	t := s.tableNamed(q.Table)
	if t == nil {
		return unknownTable(q.Table)
	}
	if q.Where != "" {
		if err := s.worker.CheckPredicate(ctx, s.current().Version, t.id, q.Where); err != nil {
			return err
		}
	}
	running := s.queries.add(ctx, &Statement{SQL: tailSQL(q), Client: q.Client})
	running.start()
	defer s.queries.remove(running)
	ctx, cancel := s.untilClosed(running.ctx)
	defer cancel()
	f := &tail{store: s, running: running, table: t, where: q.Where, emit: emit, held: s.snapshot()}
	defer func() { f.held.release() }()
	f.next = f.held.end()
	err := f.begin(ctx, q.Since)
	for err == nil {
		changed := s.log.Changed()
		if err = f.poll(ctx); err == nil && !f.behind {
			err = waitForRows(ctx, changed)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// tailSQL returns the text that SHOW QUERIES lists for a tail.
func tailSQL(q catalog.TailRequest) string {
	sql := "TAIL " + q.Table
	if q.Where != "" {
		sql += " WHERE " + q.Where
	}
	return sql
}

// unknownTable returns the error for an unknown table name.
func unknownTable(name string) error {
	return configError("SHOW TABLES lists the tables", "there is no table %s", name)
}

// waitForRows waits for an append, and then for more rows to batch.
func waitForRows(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-time.After(tailInterval):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end returns the position after the last row of a snapshot.
func (s *snapshot) end() wal.Position {
	if len(s.ends) == 0 {
		return wal.Position{File: s.manifest.LogStart, Offset: wal.FirstFrame}
	}
	last := s.ends[len(s.ends)-1]
	return wal.Position{File: last.Number, Offset: last.End}
}

// A tail follows a table.
type tail struct {
	store   *Store
	running *runningQuery
	table   *Table
	where   string
	emit    func(*catalog.TailBatch) error
	next    wal.Position // first frame not sent yet
	held    snapshot     // keeps the file of next
	lost    bool         // held has been released
	behind  bool         // the log had more rows at the last poll
}

// begin sends existing rows with event times from since on.
func (f *tail) begin(ctx context.Context, since time.Time) error {
	b := &catalog.TailBatch{}
	if entry := f.held.manifest.TableByID(f.table.id); entry != nil { // the table may be newer
		b.Columns = columnsOf(entry.Current())
	}
	if err := f.send(b); err != nil || since.IsZero() {
		return err
	}
	b, err := f.readStored(ctx, since)
	if err != nil || b.Count == 0 {
		return err
	}
	return f.send(b)
}

// readStored reads the newest rows of a snapshot.
func (f *tail) readStored(ctx context.Context, since time.Time) (*catalog.TailBatch, error) {
	column := f.held.manifest.TableByID(f.table.id).Time
	if column == "" {
		return nil, configError("leave out the time to begin at", "table %s has no time column", f.table.Name())
	}
	sql := fmt.Sprintf("SELECT * FROM %s WHERE %s >= $since", sqltext.QuoteName(f.table.Name()), sqltext.QuoteName(column))
	if f.where != "" {
		sql += " AND (" + f.where + "\n)"
	}
	sql += fmt.Sprintf(" ORDER BY %s DESC LIMIT %d", sqltext.QuoteName(column), storedRowsMax)
	slot := new(querySlot)
	if err := slot.moveTo(ctx, f.store.slots); err != nil {
		return nil, err
	}
	defer slot.release()
	rows, err := f.store.worker.Query(ctx, sqlclient.Query{
		Version: f.held.manifest.Version, Ends: f.held.ends, SQL: sql, Params: []Param{{Name: "since", Value: since}},
	})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	b := &catalog.TailBatch{Columns: rows.Columns()}
	var lines [][]byte // newest first
	for size := 0; size < storedBytesMax && rows.Next(); {
		lines = append(lines, append(protocol.AppendObject(nil, b.Columns, rows.Row()), '\n'))
		size += len(lines[len(lines)-1])
		b.Skipped = len(lines) == storedRowsMax || size >= storedBytesMax
	}
	b.Count = len(lines)
	slices.Reverse(lines)
	b.Rows = slices.Concat(lines...)
	return b, rows.Err()
}

// poll sends the next rows of the log.
func (f *tail) poll(ctx context.Context) error {
	now := f.store.snapshot()
	if now.manifest.TableByID(f.table.id) == nil {
		now.release()
		return ErrDropped
	}
	b := &catalog.TailBatch{}
	if start := now.manifest.LogStart; f.next.File < start && (f.lost || start-f.next.File > tailFiles) {
		f.next = wal.Position{File: start, Offset: wal.FirstFrame}
		b.Skipped = true
	}
	if err := f.read(ctx, &now, b); err != nil {
		now.release()
		return err
	}
	f.behind = f.next != now.end()
	if f.lost || f.next.File >= now.manifest.LogStart {
		f.held.release()
		f.held, f.lost = now, false
	} else {
		now.release()
	}
	if b.Count == 0 && !b.Skipped {
		return nil
	}
	return f.send(b)
}

// read reads rows of a snapshot from next on and advances next past them.
func (f *tail) read(ctx context.Context, now *snapshot, b *catalog.TailBatch) error {
	slot := new(querySlot)
	if err := slot.moveTo(ctx, f.store.slots); err != nil {
		return err
	}
	defer slot.release()
	rows, err := f.store.worker.Tail(ctx, protocol.Tail{
		Version: now.manifest.Version, Ends: now.ends, Table: f.table.id, From: f.next, Where: f.where,
	})
	if err != nil {
		return err
	}
	defer rows.Close()
	b.Columns = rows.Columns()
	for rows.Next() {
		b.Rows = append(protocol.AppendObject(b.Rows, b.Columns, rows.Row()), '\n')
		b.Count++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	f.next = rows.Position()
	return nil
}

// send calls emit. If emit takes too long, it stops keeping files for this tail.
func (f *tail) send(b *catalog.TailBatch) error {
	timer := time.AfterFunc(tailHold, f.held.release)
	defer func() { f.lost = f.lost || !timer.Stop() }()
	f.running.rows.Add(int64(b.Count))
	return f.emit(b)
}
