//go:build linux && cgo

package eventstore

import (
	"errors"
	"math"
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
	m := s.manifest
	s.pins[m.Version]++
	var once sync.Once
	return snapshot{manifest: m, ends: s.log.Ends(), release: func() { once.Do(func() { s.unpin(m.Version) }) }}
}

func (s *Store) unpin(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins[version]--; s.pins[version] == 0 {
		delete(s.pins, version)
		if len(s.garbage) > 0 {
			wake(s.sealer)
		}
	}
}

// A garbage removes files that no manifest from version on needs.
type garbage struct {
	version uint64
	remove  func() error
}

// collectGarbage removes files that no reader needs. It retries failed removals the next
// time.
func (s *Store) collectGarbage() error {
	var errs []error
	for _, g := range s.takeGarbage() {
		if err := g.remove(); err != nil {
			errs = append(errs, err)
			s.mu.Lock()
			s.garbage = append([]garbage{g}, s.garbage...)
			s.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (s *Store) takeGarbage() []garbage {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := uint64(math.MaxUint64)
	for version := range s.pins {
		oldest = min(oldest, version)
	}
	n := 0
	for n < len(s.garbage) && s.garbage[n].version <= oldest {
		n++
	}
	taken := s.garbage[:n:n]
	s.garbage = s.garbage[n:]
	return taken
}
