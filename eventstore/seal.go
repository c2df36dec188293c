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
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// sealClosedFiles moves the rows of each closed log file into Parquet files, oldest first.
func (s *Store) sealClosedFiles(ctx context.Context) error {
	for {
		start := s.current().LogStart
		ends := s.log.Ends()
		i := slices.IndexFunc(ends, func(f wal.FileEnd) bool { return f.Number >= start })
		if i < 0 || !ends[i].Closed {
			return nil
		}
		if err := s.sealFile(ctx, ends[i]); err != nil {
			return fmt.Errorf("eventstore: seal file %d of the log: %w", ends[i].Number, err)
		}
		s.setBacklog(nil)
		wake(s.compactor)
	}
}

// sealFile moves the rows and ranges of a closed log file into the manifest.
func (s *Store) sealFile(ctx context.Context, log wal.FileEnd) error {
	s.appends.wait() // then all frames of the closed files are recorded
	s.rewriting.RLock()
	defer s.rewriting.RUnlock()
	m, number := s.current(), s.nextSegment()
	segment := protocol.Segment{Version: m.Version, Log: log, Number: number}
	written, err := s.worker.WriteSegment(ctx, segment)
	if errors.Is(err, protocol.ErrMemory) {
		segment.Number, segment.LowMemory = s.nextSegment(), true
		written, err = s.worker.WriteSegment(ctx, segment)
	}
	if err != nil {
		return err
	}
	number = segment.Number
	fingerprints, err := s.writeFingerprints(m, log.Number, number)
	if err != nil {
		return err
	}
	keys, err := s.writeKeys(m, log, number)
	if err != nil {
		return err
	}
	now := time.Now()
	var gone []func() error // removes fingerprint and key files
	err = s.change(func(next *manifest.Manifest) error {
		next.LogStart = log.Number + 1
		for _, w := range written {
			file := w.File
			file.Segment, file.Log, file.Deleted = number, log.Number, lastDelete(m.TableByID(w.Table))
			file.Sealed = now.Unix()
			t := next.TableByID(w.Table)
			file.Computed = t.ComputedUpTo(wal.Position{File: log.Number, Offset: wal.FirstFrame})
			t.Files = append(t.Files, &file)
		}
		for _, t := range next.Tables {
			all := append(t.Fingerprints, fingerprints[t.ID]...)
			t.Fingerprints = recentFingerprints(all, now)
			for _, old := range all[:len(all)-len(t.Fingerprints)] {
				gone = append(gone, func() error { return t.RemoveFile(s.folder, manifest.FingerprintsName(old.Number)) })
			}
			t.Keys = append(t.Keys, keys[t.ID]...)
			for _, name := range dropOldKeys(t, now) {
				gone = append(gone, func() error { return t.RemoveFile(s.folder, name) })
			}
			t.Partitions = s.tableByID(t.ID).partitionsUpTo(log.Number)
			s.pruneTable(next, t)
		}
		return nil
	}, &garbage{remove: func() error {
		err := s.log.RemoveBefore(log.Number + 1)
		for _, remove := range gone {
			err = errors.Join(err, remove())
		}
		return err
	}})
	if err != nil {
		return err
	}
	s.dropSealedLog(m, log.Number)
	return nil
}

// writeFingerprints writes the committed changes of a log file for each table that has fingerprints
// in it or still keeps older ones.
func (s *Store) writeFingerprints(m *manifest.Manifest, log, number uint64) (map[uint32][]*manifest.FingerprintsFile, error) {
	files := map[uint32][]*manifest.FingerprintsFile{}
	for _, entry := range m.Tables {
		changes := s.tableByID(entry.ID).changesOf(log)
		fingerprinted := slices.ContainsFunc(changes, func(c manifest.RangeChange) bool { return len(c.Range.Fingerprints) > 0 })
		reset := slices.ContainsFunc(changes, func(c manifest.RangeChange) bool { return c.Reset })
		if !fingerprinted && (!reset || len(entry.Fingerprints) == 0) {
			continue
		}
		file, err := manifest.WriteFingerprints(s.folder, entry, number, changes)
		if err != nil {
			return nil, err
		}
		files[entry.ID] = append(files[entry.ID], file)
	}
	return files, nil
}

// changesOf returns the committed changes in a log file.
func (t *Table) changesOf(file uint64) (changes []manifest.RangeChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, state := range t.partitions {
		for _, c := range state.logged {
			if c.file == file {
				changes = append(changes, c.RangeChange)
			}
		}
	}
	return changes
}

// partitionsUpTo returns the committed positions of all partitions up to the end of a log
// file.
func (t *Table) partitionsUpTo(file uint64) (entries []*manifest.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, state := range t.partitions {
		if committed := state.sealedUpTo(file); len(committed) > 0 {
			entries = append(entries, manifest.NewPartition(key.pipeline, key.partition, committed))
		}
	}
	slices.SortFunc(entries, func(a, b *manifest.Partition) int {
		return cmp.Or(cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.Partition, b.Partition))
	})
	return entries
}

// sealedUpTo returns the committed positions up to the end of a log file.
func (p *partitionState) sealedUpTo(file uint64) event.Ranges {
	committed := slices.Clone(p.sealed)
	for _, c := range p.logged {
		if c.file <= file {
			c.Range.Fingerprints = nil
			committed = c.Apply(committed)
		}
	}
	return committed
}

// dropSealedLog records that the manifest now covers a log file. before is the last manifest
// that did not.
func (s *Store) dropSealedLog(before *manifest.Manifest, file uint64) {
	for _, entry := range before.Tables {
		t := s.tableByID(entry.ID)
		t.mu.Lock()
		for _, state := range t.partitions {
			state.sealed = state.sealedUpTo(file)
			state.logged = keep(state.logged, func(c logChange) bool { return c.file > file })
		}
		delete(t.schemasOf, file)
		t.mu.Unlock()
	}
}
