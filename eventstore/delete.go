//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// Delete deletes the table's current rows that match predicate. The predicate is an
// SQL expression over the table's columns. When Delete returns, the delete is durable and no
// query sees the rows. WaitDeleted waits until they are gone from all files. If ctx ends
// first, Delete fails and deletes nothing.
func (s *Store) Delete(ctx context.Context, table, predicate string) (catalog.Delete, error) {
	t := s.tableNamed(table)
	if t == nil {
		return catalog.Delete{}, unknownTable(table)
	}
	if err := s.worker.CheckPredicate(ctx, s.current().Version, t.id, predicate); err != nil {
		return catalog.Delete{}, err
	}
	d := manifest.Delete{Predicate: predicate, RequestedAt: time.Now().UTC()}
	err := s.change(func(next *manifest.Manifest) error {
		entry := next.TableByID(t.id)
		switch {
		case entry == nil:
			return unknownTable(table)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		d.Number = next.NextDelete
		next.NextDelete++
		d.Before = s.log.End()
		entry.Deletes = append(entry.Deletes, &d)
		return nil
	}, nil)
	if err != nil {
		return catalog.Delete{}, err
	}
	// Sealing the log drops the deleted rows in it.
	err = s.log.Rotate(context.WithoutCancel(ctx))
	wake(s.compactor)
	return describeDelete(t.Name(), &d), err
}

// ErrCanceled reports that a delete was canceled before it finished.
var ErrCanceled = errors.New("the delete was canceled")

// CancelDelete cancels a running delete. Rows that are still in files or in the log become
// visible again, atomically for all queries. It returns how many of the table's files were
// already rewritten without the rows; those rows are gone. If the delete only waits for the
// lake, the wait ends.
func (s *Store) CancelDelete(table string, number uint64) (without int, err error) {
	t := s.tableNamed(table)
	if t == nil {
		return 0, unknownTable(table)
	}
	s.rewriting.Lock() // block rewrites, which would drop more rows
	defer s.rewriting.Unlock()
	s.setCanceled(number, true) // before a waiter can see that the delete ended
	err = s.change(func(next *manifest.Manifest) error {
		entry := next.TableByID(t.id)
		if entry == nil {
			return unknownTable(table)
		}
		if entry.CancelPurge(number) {
			return nil
		}
		kept := keep(entry.Deletes, func(d *manifest.Delete) bool { return d.Number != number })
		if len(kept) == len(entry.Deletes) {
			return configError("perigee table show "+entry.Name+" lists the running deletes", "delete %d of table %s is not running", number, entry.Name)
		}
		for _, f := range entry.Files {
			if f.Deleted >= number {
				without++
			}
		}
		entry.Deletes = kept
		return nil
	}, nil)
	if err != nil {
		s.setCanceled(number, false)
	}
	return without, err
}

func (s *Store) setCanceled(number uint64, canceled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canceled[number] = canceled
}

// deletesOf describes the running deletes of a table, oldest first.
func deletesOf(t *manifest.Table) []catalog.Delete {
	all := []catalog.Delete{}
	if t.Lake != nil {
		for _, p := range t.Lake.Purges {
			all = append(all, catalog.Delete{Number: p.Number, Table: t.Name, Where: p.Predicate, RequestedAt: p.RequestedAt, Lake: cmp.Or(p.Waits, "not asked yet"), Until: p.Next})
		}
	}
	for _, d := range t.Deletes {
		all = append(all, describeDelete(t.Name, d))
	}
	return all
}

// addFetchError adds to running deletes of a table why no file in its lake can be fetched for them.
func (s *Store) addFetchError(t *manifest.Table, deletes []catalog.Delete) {
	err := s.fetchError(t)
	if err == nil || !hasDeletesInLake(t) {
		return
	}
	for i := range deletes {
		if deletes[i].Lake == "" {
			deletes[i].Error, deletes[i].Hint = err.Error(), event.HintOf(err)
		}
	}
}

func describeDelete(table string, d *manifest.Delete) catalog.Delete {
	return catalog.Delete{Number: d.Number, Table: table, Where: d.Predicate, RequestedAt: d.RequestedAt}
}

// WaitDeleted waits until no file of the store has rows of the delete. It returns ErrCanceled if
// the delete was canceled. The lake of a table has them for longer; see manifest.LakePurge.
func (s *Store) WaitDeleted(ctx context.Context, d catalog.Delete) error {
	id := uint32(0) // of the table; 0 if it was dropped
	if t := s.tableNamed(d.Table); t != nil {
		id = t.id
	}
	if err := s.awaitChange(ctx, func() bool { return !s.isDeleting(d.Number) }); err != nil {
		return err
	}
	s.mu.Lock()
	canceled, last := s.canceled[d.Number], s.manifest.Version
	s.mu.Unlock()
	if canceled {
		return ErrCanceled
	}
	// A reader may still use files that the delete has replaced.
	if err := s.awaitChange(ctx, func() bool { return !s.hasGarbage(id, last) }); err != nil {
		return err
	}
	return s.log.Scrub(ctx)
}

// isDeleting reports whether the delete with that number is running.
func (s *Store) isDeleting(number uint64) bool {
	return slices.ContainsFunc(s.current().Tables, func(t *manifest.Table) bool {
		return slices.ContainsFunc(t.Deletes, func(d *manifest.Delete) bool { return d.Number == number })
	})
}

// isCarriedOut reports whether rows of the delete are gone from the log and from all files of
// the table.
func isCarriedOut(m *manifest.Manifest, t *manifest.Table, d *manifest.Delete) bool {
	first := wal.Position{File: m.LogStart, Offset: wal.FirstFrame}
	return d.Before.Compare(first) <= 0 && !slices.ContainsFunc(t.Files, func(f *manifest.File) bool { return f.Deleted < d.Number })
}

// rewriteForDeletes rewrites the files that have deleted rows, except those in lakes that are not
// fetched yet.
func (s *Store) rewriteForDeletes(ctx context.Context) error {
	var errs []error
	for _, t := range s.current().Tables {
		last := lastDelete(t)
		if last == 0 {
			continue
		}
		var groups, fetched [][]*manifest.File
		var gone []*manifest.File
		for _, f := range t.Files {
			switch {
			case f.Deleted >= last:
			case t.HasLost(f):
				without := *f
				without.Deleted = last
				gone = append(gone, &without)
			case f.Remote == nil:
				groups = append(groups, []*manifest.File{f})
			case s.isHere(t, f):
				fetched = append(fetched, []*manifest.File{f})
			}
		}
		if len(fetched) > 0 {
			errs = append(errs, s.deleteIn(ctx, t, fetched)) // of its own, so that neither keeps the others waiting
		}
		for batch := range slices.Chunk(groups, rewriteMax) {
			if err := s.deleteIn(ctx, t, batch); err != nil {
				errs = append(errs, err)
				break
			}
		}
		if err := s.exchangeEntries(t.ID, gone); err != nil { // also prunes deletes that no file needs
			return err
		}
	}
	return errors.Join(errs...)
}

// exchangeEntries changes the entries of files.
func (s *Store) exchangeEntries(table uint32, changed []*manifest.File) error {
	names := map[string]bool{}
	for _, f := range changed {
		names[f.Name] = true
	}
	return s.replaceFiles(table, names, changed)
}

// deleteIn rewrites files of a table without the deleted rows.
func (s *Store) deleteIn(ctx context.Context, t *manifest.Table, groups [][]*manifest.File) error {
	done, err := s.rewriteFiles(ctx, t.ID, groups, rewriteOptions{})
	if errors.Is(err, protocol.ErrMemory) {
		_, err = s.rewriteFiles(ctx, t.ID, groups[done:], rewriteOptions{wide: true})
	}
	if err != nil {
		return fmt.Errorf("delete rows of table %s: %w", t.Name, err)
	}
	return nil
}

// rewriteMax is the maximum number of files rewritten in one change of the manifest.
const rewriteMax = 16

// rewriteOptions select how files are rewritten.
type rewriteOptions struct {
	wide bool // the rows need much memory
	all  bool // also single files without deleted rows
}

// rewriteFiles merges each group of files, all of one table and day, into a new file without
// the deleted rows. It returns the number of groups rewritten.
func (s *Store) rewriteFiles(ctx context.Context, table uint32, groups [][]*manifest.File, how rewriteOptions) (int, error) {
	s.rewriting.RLock()
	defer s.rewriting.RUnlock()
	m, number := s.current(), s.nextSegment()
	names := make([][]string, len(groups))
	for i, group := range groups {
		for _, f := range group {
			names[i] = append(names[i], f.Name)
		}
	}
	deleted := lastDelete(m.TableByID(table))
	merged, failed := s.worker.Merge(ctx, protocol.Merge{Version: m.Version, Table: table, Groups: names, Number: number, LowMemory: how.wide, All: how.all})
	gone, fresh, same := map[string]bool{}, []*manifest.File{}, []*manifest.File{}
	for i, result := range merged {
		if result.Unchanged {
			f := *groups[i][0]
			f.Deleted = deleted
			same = append(same, &f)
			continue
		}
		for _, f := range groups[i] {
			gone[f.Name] = true
		}
		if result.File != nil {
			fresh = append(fresh, mergedFile(m, m.TableByID(table), *result.File, groups[i], number, deleted))
		}
	}
	if len(merged) > 0 {
		for _, f := range same {
			gone[f.Name] = true
		}
		if err := s.replaceFiles(table, gone, append(fresh, same...)); err != nil {
			return 0, err
		}
	}
	return len(merged), failed
}
