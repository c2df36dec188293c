//go:build linux && cgo

package eventstore

import (
	"errors"
	"math"
	"sync"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A snapshot is what a reader sees: a version of the manifest, and how far each file of the
// log has been acknowledged. Until release, no file of it is removed. A reader that loads a
// newer manifest meanwhile finds all files of that one too.
type snapshot struct {
	manifest *manifest.Manifest
	ends     []wal.FileEnd
	release  func()
}

// snapshot returns what has been acknowledged by now.
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

// garbage is what no manifest from version on needs.
type garbage struct {
	version uint64
	remove  func() error
}

// collectGarbage removes what no reader needs any more. What cannot be removed stays for
// the next time.
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
