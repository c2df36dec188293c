//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// restructure calls change while the table takes no appends, no file is rewritten or sealed,
// and no table is opened. Appends to this table wait; other tables continue to accept them.
func (s *Store) restructure(ctx context.Context, table string, change func(ctx context.Context, t *Table) error) error {
	defer s.restructures.begin()()
	switch {
	case s.isClosed():
		return ErrClosed
	case s.options.ReadOnly:
		return errReadOnly
	}
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	defer wake(s.compactor)
	defer s.merging.interrupt()()
	s.compacting.Lock()
	defer s.compacting.Unlock()
	t := s.tableNamed(table)
	if t == nil {
		return unknownTable(table)
	}
	t.restructuring.Lock()
	defer t.restructuring.Unlock()
	s.sealing.Lock()
	defer s.sealing.Unlock()
	s.creating.Lock()
	defer s.creating.Unlock()
	if err := change(ctx, t); err != nil {
		return fmt.Errorf("table %s: %w", t.Name(), err)
	}
	return nil
}

// changeTable replaces the manifest with a copy that f changes; entry is the table in the
// copy. If an error leaves unknown which version is on disk, appends wait until a save
// succeeds.
func (t *Table) changeTable(f func(next *manifest.Manifest, entry *manifest.Table) error, dropped *garbage) error {
	var refused error
	err := t.store.change(func(next *manifest.Manifest) error {
		refused = f(next, next.TableByID(t.id))
		return refused
	}, dropped)
	if err != nil && refused == nil {
		t.store.unsaved.Store(true)
	}
	return err
}

// use blocks restructuring of the table until the caller calls release.
func (t *Table) use() (release func(), err error) {
	t.restructuring.RLock()
	if t.store.unsaved.Load() {
		if err = t.store.change(func(*manifest.Manifest) error { return nil }, nil); err == nil {
			t.store.unsaved.Store(false)
		}
	}
	if t.dropped {
		err = ErrDropped
	}
	if err != nil {
		t.restructuring.RUnlock()
		return nil, err
	}
	return t.restructuring.RUnlock, nil
}

// IsGone reports whether the table was dropped, or renamed from name to another name.
func (t *Table) IsGone(name string) bool {
	t.restructuring.RLock()
	defer t.restructuring.RUnlock()
	return t.dropped || !strings.EqualFold(t.Name(), name)
}

// DropTable removes a table with its rows, settings and positions. Its name becomes free: a
// new table of that name inherits none of them. Partitions of the table fail with ErrDropped.
func (s *Store) DropTable(ctx context.Context, name string) error {
	err := s.restructure(ctx, name, func(_ context.Context, t *Table) error {
		entry := s.current().TableByID(t.id)
		if entry.Lake != nil {
			t.warnOfDeletes(entry)
		}
		err := t.changeTable(func(next *manifest.Manifest, _ *manifest.Table) error {
			next.Tables = slices.DeleteFunc(next.Tables, func(other *manifest.Table) bool { return other.ID == t.id })
			return nil
		}, &garbage{table: t.id, remove: func() (err error) {
			for _, f := range entry.Files { // the cache may have some
				err = errors.Join(err, s.removeData(entry, f))
			}
			return errors.Join(err, entry.RemoveAll(s.folder))
		}})
		if err != nil {
			return err
		}
		t.dropped = true
		s.setTable(t.Name(), nil)
		return nil
	})
	if err != nil {
		return err
	}
	// Sealing the log drops the table's rows in it.
	return errors.Join(s.log.Rotate(ctx), s.collectGarbage())
}

// RenameTable renames a table, with its rows, settings and positions. It also reserves the
// old name: a configuration that still uses it is rejected, instead of creating a table
// without the positions. release frees the old name; a later call may do so too.
func (s *Store) RenameTable(ctx context.Context, name, to string, release bool) error {
	if err := CheckTableName(to); err != nil {
		return err
	}
	table := name
	released := s.tableNamed(name) == nil && release
	if former := s.current().FormerTable(name); released && former != nil && strings.EqualFold(former.Name, to) {
		table = former.Name
	}
	return s.restructure(ctx, table, func(_ context.Context, t *Table) error {
		if table != name {
			return t.changeTable(func(_ *manifest.Manifest, entry *manifest.Table) error {
				entry.Release(name)
				return nil
			}, nil)
		}
		if other := s.tableNamed(to); other != nil && other != t {
			return configError("choose another name, or drop that table first: perigee table drop "+other.Name(), "table %s already exists", other.Name())
		}
		if former := s.current().FormerTable(to); former != nil && former.ID != t.id {
			return checkName(s.current(), to)
		}
		if err := t.changeTable(func(_ *manifest.Manifest, entry *manifest.Table) error {
			entry.Rename(to, release)
			return nil
		}, nil); err != nil {
			return err
		}
		t.rename(to)
		s.warnIfHidden(to)
		return nil
	})
}

// rename records the new name and fences the partitions that append under the old one.
func (t *Table) rename(to string) {
	t.mu.Lock()
	for _, state := range t.partitions {
		state.ledger.Fence()
	}
	t.mu.Unlock()
	if u := t.unique.Load(); u != nil {
		u.mu.Lock()
		u.table = to
		u.mu.Unlock()
	}
	t.store.setTable(t.Name(), nil)
	t.name.Store(&to)
	t.store.setTable(to, t)
}

// DropColumn removes a column and its values. Files lose the values when they are next
// rewritten. If the field appears again, or a configuration declares it, it becomes a new
// column.
func (s *Store) DropColumn(ctx context.Context, table, column string) error {
	return s.restructureWithoutDeletes(ctx, table, func(_ context.Context, t *Table) error { return t.dropColumn(column) })
}

// restructureWithoutDeletes is like restructure, but carries out the table's deletes if change returns
// errDeleting, and calls it again. It holds no lock while files are fetched from a lake for that.
func (s *Store) restructureWithoutDeletes(ctx context.Context, table string, change func(ctx context.Context, t *Table) error) error {
	for {
		id := uint32(0)
		err := s.restructure(ctx, table, func(ctx context.Context, t *Table) error {
			id = t.id
			return s.retryForDeletes(ctx, t, func() error { return change(ctx, t) })
		})
		if !errors.Is(err, errDeleting) {
			return err
		}
		if err := s.awaitDeletesInLake(ctx, id); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
}

// awaitDeletesInLake waits until no file in a lake has rows of the table's deletes.
func (s *Store) awaitDeletesInLake(ctx context.Context, table uint32) error {
	s.lakes.mu.Lock()
	if last := s.lakes.fetches[table]; last != nil && last.err != nil { // the lake may be back
		delete(s.lakes.fetches, table)
	}
	s.lakes.mu.Unlock()
	wake(s.compactor)
	var failed error
	err := s.awaitChange(ctx, func() bool {
		t := s.current().TableByID(table)
		if !hasDeletesInLake(t) {
			return true
		}
		failed = s.fetchError(t)
		return failed != nil
	})
	return errors.Join(err, failed)
}

// hasDeletesInLake reports whether a file of a table, which may be nil, has rows of a delete and its data
// only in a lake.
func hasDeletesInLake(t *manifest.Table) bool {
	return t != nil && slices.ContainsFunc(t.Files, func(f *manifest.File) bool {
		return f.Remote != nil && !t.HasLost(f) && f.Deleted < lastDelete(t)
	})
}

// errDeleting reports a running delete, whose predicate depends on the current columns.
var errDeleting = errors.New("a delete is running")

// retryForDeletes retries change while it returns errDeleting, until the table's deletes are
// done. It returns errDeleting if they need files of a lake.
func (s *Store) retryForDeletes(ctx context.Context, t *Table, change func() error) error {
	for {
		err := change()
		if !errors.Is(err, errDeleting) {
			return err
		}
		if err := s.sealAll(ctx); err != nil {
			return err
		}
		if err := s.rewriteForDeletes(ctx); err != nil {
			return err
		}
		if hasDeletesInLake(s.current().TableByID(t.id)) {
			return errDeleting
		}
	}
}

// sealAll moves all rows of the log into files. The caller holds s.sealing.
func (s *Store) sealAll(ctx context.Context) error {
	if err := s.log.Rotate(ctx); err != nil {
		return err
	}
	return s.sealClosedFiles(ctx)
}

func (t *Table) dropColumn(column string) error {
	schema := t.current()
	i := schema.find(column)
	if i < 0 {
		return unknownColumn(schema, column)
	}
	name := schema.Columns[i].Name
	entry := t.store.current().TableByID(t.id)
	if use, hint := columnUse(entry, name); use != "" {
		return configError(hint, "column %s is %s", name, use)
	}
	if t.computedColumn(name) != nil {
		return configError("remove it from computed of the table in the configuration, and reload the engine", "column %s is computed by the configuration of the running engine", name)
	}
	next := schema.clone()
	id := next.Columns[i].ID
	next.Columns = slices.Delete(next.Columns, i, i+1)
	return t.replaceSchema(next, func(entry *manifest.Table) error {
		entry.Recomputes = keep(entry.Recomputes, func(r *manifest.Recompute) bool { return r.Column != id })
		return nil
	})
}

func unknownColumn(s *schema, column string) error {
	var names []string
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}
	return configError("columns: "+strings.Join(names, ", "), "the table has no column %s", column)
}

// columnUse returns which setting of a table uses a column and how to remove that setting, or
// "" if none does.
func columnUse(t *manifest.Table, column string) (use, hint string) {
	const remove = "remove it from the table's declaration in the configuration, and run the engine once"
	is := func(name string) bool { return strings.EqualFold(name, column) }
	switch {
	case is(t.Time):
		return "the time column", fmt.Sprintf("give the table another time column, or none: perigee table set-time %s --none", t.Name)
	case t.Unique != nil && slices.ContainsFunc(t.Unique.Key, is):
		return "part of the key of unique", remove
	case is(t.Event):
		return "the event column", remove
	case slices.ContainsFunc(t.Sort, is):
		return "one of those that files are sorted by", remove
	case slices.ContainsFunc(t.Bloom, is):
		return "one of those with bloom filters", remove
	}
	return "", ""
}

// replaceSchema makes next the newest schema and applies a further change to the table. The
// caller is restructuring the table. If the table has deletes, replaceSchema returns
// errDeleting.
func (t *Table) replaceSchema(next *schema, also func(entry *manifest.Table) error) error {
	err := t.changeTable(func(_ *manifest.Manifest, entry *manifest.Table) error {
		if len(entry.Deletes) > 0 {
			return errDeleting
		}
		entry.Schemas = append(entry.Schemas, &next.Schema)
		entry.NextColumn = max(entry.NextColumn, next.nextColumn)
		return also(entry)
	}, nil)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schema = next
	return nil
}
