//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/lakecache"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A TimeColumn selects the column that holds the event's own time.
type TimeColumn struct {
	Name string     // "" for none
	Unit event.Unit // unit of numeric values
	Type event.Type // Timestamp or TimestampNS; by default TimestampNS for Nanoseconds
}

func (c TimeColumn) kind() event.Type {
	switch {
	case c.Type != 0:
		return c.Type
	case c.Unit == event.Nanoseconds:
		return event.TimestampNS
	}
	return event.Timestamp
}

// SetTime changes a table's time column to an existing column, whose values become times, or
// to none. It fails if a row has no time in that column. When it returns, queries and appends
// use the new column. A table without a time column loses its retention. The files are then
// rewritten in the background, one per day; this resumes after a crash. WaitDivided waits for
// it.
func (s *Store) SetTime(ctx context.Context, table string, c TimeColumn) error {
	defer s.restructures.begin()()
	if s.isClosed() {
		return ErrClosed
	}
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	defer wake(s.compactor)
	read := map[string]sqlclient.FileTimes{}
	for {
		if err := s.readTimes(ctx, table, c, read); err != nil { // while appends continue
			return fmt.Errorf("table %s: %w", table, err)
		}
		err := s.restructureWithoutDeletes(ctx, table, func(ctx context.Context, t *Table) error { return t.setTime(ctx, c, read) })
		if !errors.Is(err, errUnread) {
			return err
		}
	}
}

// errUnread reports a file whose data are in a lake and whose times are not read yet.
var errUnread = errors.New("a file must be fetched first")

// readTimes reads the times of the table's current files. It skips files that a delete has
// yet to rewrite; they are read later.
func (s *Store) readTimes(ctx context.Context, table string, c TimeColumn, read map[string]sqlclient.FileTimes) error {
	entry, release := s.keepTable(table)
	defer release()
	if entry == nil || c.Name == "" || len(entry.Deletes) > 0 {
		return nil
	}
	planned, _, err := withTime(entry, schemaOf(entry), c)
	if err != nil {
		return err
	}
	for _, f := range planned.Files {
		if _, known := read[f.Name]; known || f.Remote == nil {
			continue
		}
		if read[f.Name], err = s.remoteTimes(ctx, planned, f); err != nil {
			return fmt.Errorf("read the times of file %s: %w", f.Name, err)
		}
	}
	return s.addTimes(ctx, planned, read)
}

// remoteTimes reads the times of a file whose data are in a lake.
func (s *Store) remoteTimes(ctx context.Context, planned *manifest.Table, f *manifest.File) (times sqlclient.FileTimes, err error) {
	lost, err := s.checkRewritten(ctx, planned.ID, f.Name)
	if err != nil {
		return times, err
	}
	pinned, err := s.lakes.cache.Pin(ctx, []lakecache.File{lakecache.Of(s.folder, planned, f)}, true)
	switch {
	case lost && errors.Is(err, lakecache.ErrMissing):
		return anyTime, nil
	case err != nil:
		return times, err
	}
	defer pinned.Release()
	if times, err = s.worker.FileTimes(ctx, planned, f); lost {
		times.Missing = 0
	}
	return times, err
}

// anyTime are the times of a file whose rows are no longer the store's and whose object is gone:
// queries of any time are refused, since it may have rows for them.
var anyTime = sqlclient.FileTimes{Least: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), Greatest: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()}

// addTimes reads the times of those files of a planned table that are not in read. It returns
// errUnread if one is not on this disk.
func (s *Store) addTimes(ctx context.Context, planned *manifest.Table, read map[string]sqlclient.FileTimes) error {
	for _, f := range planned.Files {
		if _, known := read[f.Name]; known {
			continue
		}
		if f.Remote != nil {
			return errUnread
		}
		times, err := s.worker.FileTimes(ctx, planned, f)
		if err != nil {
			return fmt.Errorf("read the times of file %s: %w", f.Name, err)
		}
		read[f.Name] = times
	}
	return nil
}

// withTime returns the entry and the schema of a table with another time column.
func withTime(entry *manifest.Table, s *schema, c TimeColumn) (*manifest.Table, *schema, error) {
	next, planned := s.clone(), *entry
	if i := next.find(s.time); s.time != "" && i >= 0 {
		next.Columns[i].Required = false
	}
	next.time = ""
	if c.Name != "" {
		i := s.find(c.Name)
		if i < 0 {
			return nil, nil, unknownColumn(s, c.Name)
		}
		column := &next.Columns[i]
		switch column.Type {
		case 0, event.String, event.Int32, event.Int64, event.Float64, event.JSON, event.Timestamp, event.TimestampNS:
		default:
			return nil, nil, configError("name a column of times: text as RFC 3339 has them, or numbers", "column %s is of type %s", column.Name, column.Type)
		}
		if entry.Unique != nil && column.Type != c.kind() && slices.ContainsFunc(entry.Unique.Key, func(name string) bool { return next.find(name) == i }) {
			return nil, nil, configError("remove it from the key in the configuration, and run the engine once", "column %s is part of the key of unique", column.Name)
		}
		column.Type, column.Unit, column.Digits, column.Wide = c.kind(), c.Unit, event.Digits{}, false
		column.Declared, column.Required = true, true
		next.time = column.Name
	}
	planned.Time = next.time
	planned.Schemas = append(slices.Clone(entry.Schemas), &next.Schema)
	return &planned, next, nil
}

// setTime changes the time column. The caller is restructuring the table.
func (t *Table) setTime(ctx context.Context, c TimeColumn, read map[string]sqlclient.FileTimes) error {
	s := t.store
	if len(s.current().TableByID(t.id).Deletes) > 0 {
		return errDeleting
	}
	if err := s.sealAll(ctx); err != nil {
		return err
	}
	planned, next, err := withTime(s.current().TableByID(t.id), t.current(), c)
	if err != nil {
		return err
	}
	if c.Name != "" {
		if err := s.addTimes(ctx, planned, read); err != nil {
			return err
		}
	}
	missing := int64(0)
	for _, f := range planned.Files {
		missing += read[f.Name].Missing
	}
	if missing > 0 {
		return configError(fmt.Sprintf(`give them a time, or delete them: perigee table delete %s "WHERE try_cast(%s AS TIMESTAMP) IS NULL"`, t.Name(), sqltext.QuoteName(next.time)),
			"rows without a time in column %s: %d", next.time, missing)
	}
	return t.replaceSchema(next, func(entry *manifest.Table) error {
		for i, f := range entry.Files { // those of planned, but reports of the lake may have changed some
			file, times := *f, read[f.Name]
			file.MinTime, file.MaxTime, file.Undivided = times.Least, times.Greatest, c.Name != ""
			entry.Files[i] = &file
		}
		entry.Time = next.time
		if next.time == "" {
			entry.Retention = 0
		}
		return nil
	})
}

// divideFile splits one file of each table whose time column changed into a file per day: one that was
// fetched from a lake, or else the newest one on disk. If more files remain, it wakes the compactor
// again.
func (s *Store) divideFile(ctx context.Context) error {
	var failed error
	for _, t := range s.current().Tables {
		f := s.nextFile(t, func(f *manifest.File) bool { return f.Undivided })
		if f == nil {
			continue
		}
		if err := s.divide(ctx, t.ID, f); err != nil {
			failed = errors.Join(failed, fmt.Errorf("divide file %s of table %s by days: %w", f.Name, t.Name, err))
			continue
		}
		wake(s.compactor)
	}
	return failed
}

func (s *Store) divide(ctx context.Context, table uint32, f *manifest.File) error {
	if s.current().TableByID(table).HasLost(f) {
		whole := *f
		whole.Undivided = false
		return s.exchangeEntries(table, []*manifest.File{&whole})
	}
	s.rewriting.RLock()
	defer s.rewriting.RUnlock()
	m := s.current() // includes the deletes that run now
	t := m.TableByID(table)
	number := s.nextSegment()
	written, err := s.worker.Recompute(ctx, protocol.Recompute{Version: m.Version, Table: t.ID, File: f.Name, Number: number})
	if errors.Is(err, protocol.ErrMemory) {
		s.options.Log.Warn("event store: a file keeps the rows of several days, because dividing it needs too much memory", "table", t.Name, "file", f.Name)
		whole := *f
		whole.Undivided = false
		return s.exchangeEntries(t.ID, []*manifest.File{&whole})
	}
	if err != nil {
		return err
	}
	var fresh []*manifest.File
	for _, one := range written {
		file := mergedFile(m, t, one, []*manifest.File{f}, number, lastDelete(t))
		file.Undivided, file.Changed = false, len(file.Replaces) > 0
		fresh = append(fresh, file)
	}
	return s.replaceFiles(t.ID, map[string]bool{f.Name: true}, fresh)
}

// WaitDivided waits until each file of the table holds the rows of a single day.
func (s *Store) WaitDivided(ctx context.Context, table string) error {
	isUndivided := func(f *manifest.File) bool { return f.Undivided }
	var entry *manifest.Table
	err := s.awaitChange(ctx, func() bool {
		entry = s.current().Table(table)
		return entry == nil || !slices.ContainsFunc(entry.Files, isUndivided)
	})
	if err == nil && entry == nil {
		err = unknownTable(table)
	}
	return err
}
