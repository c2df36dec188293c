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

// restructure calls change while nothing is appended to a table, no file is rewritten or sealed,
// and no table is opened. Appends wait; other tables take theirs.
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

// changeTable replaces the manifest by what f makes of a copy, in which entry is the table. After
// an error that leaves open which version is on the disk, appends wait for one that is.
func (t *Table) changeTable(f func(next *manifest.Manifest, entry *manifest.Table) error, remove func() error) error {
	var refused error
	err := t.store.change(func(next *manifest.Manifest) error {
		refused = f(next, next.TableByID(t.id))
		return refused
	}, remove)
	if err != nil && refused == nil {
		t.store.unsaved.Store(true)
	}
	return err
}

// use keeps the table from being restructured until release is called.
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

// IsGone reports whether the table was dropped, or renamed from a name.
func (t *Table) IsGone(name string) bool {
	t.restructuring.RLock()
	defer t.restructuring.RUnlock()
	return t.dropped || !strings.EqualFold(t.Name(), name)
}

// DropTable removes a table with its rows, settings and positions. Its name is free then: a table
// of that name begins without any of them. Partitions of the table end with ErrDropped.
func (s *Store) DropTable(ctx context.Context, name string) error {
	err := s.restructure(ctx, name, func(_ context.Context, t *Table) error {
		entry := s.current().TableByID(t.id)
		err := t.changeTable(func(next *manifest.Manifest, _ *manifest.Table) error {
			next.Tables = slices.DeleteFunc(next.Tables, func(other *manifest.Table) bool { return other.ID == t.id })
			return nil
		}, func() error { return entry.RemoveAll(s.folder) })
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
	// The rows in the log go when it is sealed.
	return errors.Join(s.log.Rotate(ctx), s.collectGarbage())
}

// RenameTable gives a table another name. It keeps its rows, settings and positions, and its old
// name too: a configuration that still has that is refused, instead of making a table which
// begins with none of the positions. release frees the old name, also later.
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

// rename notes that the table has another name. Those who write to it under the old one are
// fenced.
func (t *Table) rename(to string) {
	t.mu.Lock()
	for _, state := range t.partitions {
		state.owner = nil
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

// DropColumn removes a column with its values. Files lose them when they are written again. A
// later event with the field makes a new column, as a configuration or the event has it.
func (s *Store) DropColumn(ctx context.Context, table, column string) error {
	return s.restructure(ctx, table, func(ctx context.Context, t *Table) error {
		return s.retryForDeletes(ctx, t, func() error { return t.dropColumn(column) })
	})
}

// errDeleting says that a delete is under way whose predicate is for the columns as they are.
var errDeleting = errors.New("a delete is under way")

// retryForDeletes calls change, which returns errDeleting if the table has deletes, until they
// are carried out.
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

// columnUse says what settings of a table need a column for, and how that ends; "" if none does.
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

// replaceSchema makes next the newest schema, with a further change to the table. The table is
// being restructured, and must have no deletes: errDeleting.
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
