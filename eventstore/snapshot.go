//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A snapshot is a reader's view: a version of the manifest and the acknowledged length of
// each log file. No file of it is removed until release. A reader that loads a newer manifest
// meanwhile finds all files of that version too.
type snapshot struct {
	manifest *manifest.Manifest
	ends     []wal.FileEnd
	release  func()
}

// snapshot returns a snapshot of everything acknowledged so far.
func (s *Store) snapshot() snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshot{manifest: s.manifest, ends: s.log.Ends(), release: s.pin(0)}
}

// keepFiles keeps the present files of a table until release.
func (s *Store) keepFiles(table uint32) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pin(table)
}

// keepTable returns a table, or nil if there is none, and keeps its files until release.
func (s *Store) keepTable(name string) (t *manifest.Table, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t = s.manifest.Table(name); t == nil {
		return nil, func() {}
	}
	return t, s.pin(t.ID)
}

// A pin keeps the files of a version of the manifest: those of a table, or of all tables and the log
// if table is 0.
type pin struct {
	version uint64
	table   uint32
}

// pin keeps files of the present manifest until release. The caller holds s.mu.
func (s *Store) pin(table uint32) (release func()) {
	p := pin{s.manifest.Version, table}
	s.pins[p]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pins[p]--; s.pins[p] == 0 {
			delete(s.pins, p)
			if len(s.garbage) > 0 {
				wake(s.sealer)
			}
		}
	})
}

// A garbage removes files that no manifest from version on needs.
type garbage struct {
	version uint64
	table   uint32 // ID of the table of the files; 0 for files of the log, with rows of all tables
	remove  func() error
}

// collectGarbage removes files that no reader needs. It retries failed removals the next
// time.
func (s *Store) collectGarbage() error {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	var errs []error
	for _, g := range s.unreadGarbage() {
		if err := g.remove(); err != nil {
			errs = append(errs, err)
			continue
		}
		s.mu.Lock()
		s.garbage = keep(s.garbage, func(other *garbage) bool { return other != g })
		s.signalChange()
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// unreadGarbage returns the garbage that no reader needs, oldest version first.
func (s *Store) unreadGarbage() []*garbage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return keep(s.garbage, func(g *garbage) bool {
		for p := range s.pins {
			if p.version < g.version && (p.table == 0 || p.table == g.table) {
				return false
			}
		}
		return true
	})
}

// hasGarbage reports whether files that may have rows of a table, dropped by a manifest up to
// version, still exist. Table 0 means any table.
func (s *Store) hasGarbage(table uint32, version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.garbage, func(g *garbage) bool {
		return g.version <= version && (table == 0 || g.table == 0 || g.table == table)
	})
}

// signalChange wakes awaitChange. The caller holds s.mu.
func (s *Store) signalChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitChange waits until done returns true. It calls done again whenever the manifest has
// changed or garbage was removed.
func (s *Store) awaitChange(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
	}
}

// An inFlight tracks running operations so that others can wait for them. The zero value is
// ready.
//
// Unlike a sync.RWMutex, it does not block new operations while a caller waits for earlier
// ones. With an RWMutex, appends would wait for the commit of others and then for their own.
type inFlight struct {
	mu sync.Mutex
	// running counts operations. The last element counts new ones; each earlier element
	// is one that a caller waits for.
	running []*sync.WaitGroup
}

// begin registers an operation. The caller calls end when the operation is done.
func (f *inFlight) begin() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.running) == 0 {
		f.running = append(f.running, new(sync.WaitGroup))
	}
	group := f.running[len(f.running)-1]
	group.Add(1)
	return group.Done
}

// wait waits for the operations that are running now. New ones may begin meanwhile.
func (f *inFlight) wait() {
	f.mu.Lock()
	before := slices.Clone(f.running)
	f.running = append(f.running, new(sync.WaitGroup))
	f.mu.Unlock()
	for _, group := range before {
		group.Wait()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = slices.DeleteFunc(f.running, func(group *sync.WaitGroup) bool { return slices.Contains(before, group) })
}
