//go:build linux && cgo

package eventstore

import (
	"strings"
	"sync"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// TestSealWaitsForAppends checks that a log file is not sealed and removed while an append in
// it is not recorded yet; otherwise its range would be lost.
func TestSealWaitsForAppends(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	end := sync.OnceFunc(s.appends.begin()) // as logChange does before the frame is in the log
	defer end()
	if err := s.log.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the sealer waits for appends", func() bool {
		if s.current().LogStart > 1 {
			t.Fatalf("got a log that begins with file %d, want 1: the file was sealed", s.current().LogStart)
		}
		return s.appends.isAwaited()
	})
	if start := s.current().LogStart; start != 1 {
		t.Errorf("the log begins at file %d", start)
	}
	end()
	await(t, "the file is sealed", func() bool { return s.current().LogStart > 1 })
}

// TestSealedFilesAreForgotten checks that a store drops its state of a removed log file:
// changes, schema versions, and expired fingerprints.
func TestSealedFilesAreForgotten(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	for i := range uint64(4) {
		appendFingerprinted(t, p, 10*i, 10)
		seal(t, s)
		err := s.change(func(next *manifest.Manifest) error {
			for n, f := range next.Tables[0].Fingerprints {
				old := *f
				old.Written = old.Written.Add(-fingerprintAge)
				next.Tables[0].Fingerprints[n] = &old
			}
			return nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	if isAppending(table, p.key) {
		t.Error("an append has not ended its reservation")
	}
	table.mu.Lock()
	if state := table.state(p.key); len(state.logged) != 0 || len(table.schemasOf) != 0 || len(table.encoding) != 0 {
		t.Errorf("%d changes and schemas %v of files that are gone; appends with %v", len(state.logged), table.schemasOf, table.encoding)
	}
	table.mu.Unlock()
	await(t, "old files of fingerprints are gone", func() bool {
		wake(s.sealer)
		n := 0
		for _, name := range filesBelow(t, manifest.TablesFolder(folder)) {
			if strings.Contains(name, "ranges-") {
				n++
			}
		}
		return n == len(s.current().Tables[0].Fingerprints) && n == 1
	})
}
