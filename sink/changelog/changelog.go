// Package changelog is the home of the state of pipelines that have no sink to keep it: one file
// of the data folder with committed ranges, units and notes. It serves the pipeline as a sink that
// keeps no rows.
//
// A commit is synced before Write or WriteNote returns, and holds range and note or neither.
// Writers of all pipelines that wait at the same time share one. Epochs in the file fence the
// previous owners of partitions and units. Each value has a checksum.
//
// A Store and all that it makes are safe for concurrent use.
package changelog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/boltfile"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// FileName is the name of the store in the data folder.
const FileName = "changelog.db"

// A Store is an open changelog. Only one process can have it open.
type Store struct {
	file    *boltfile.File
	commits *durable.GroupCommit[*change]
}

// Open opens the changelog in the data folder, which must exist. It creates the file if
// necessary.
func Open(folder string) (*Store, error) {
	file, err := boltfile.Open(filepath.Join(folder, FileName), bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("open the changelog: %w", err)
	}
	complete := true
	err = file.View(func(tx *bolt.Tx) error {
		for _, name := range buckets {
			complete = complete && tx.Bucket(name) != nil
		}
		return nil
	})
	if err == nil && !complete {
		err = file.Update(createBuckets)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create the changelog: %w", err), file.Close())
	}
	s := &Store{file: file}
	s.commits = durable.NewGroupCommit(s.commitAll)
	return s, nil
}

func createBuckets(tx *bolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// Exists reports whether the data folder has a changelog.
func Exists(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, FileName))
	return err == nil
}

// Close closes the file, after all sinks.
func (s *Store) Close() error { return s.file.Close() }

// Sink returns the sink of a pipeline. It needs no Close.
func (s *Store) Sink(pipeline string, log *slog.Logger) *Sink {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Sink{store: s, pipeline: pipeline, log: log}
}

// A change is one caller's part of a commit: it is refused, or changes the file. After an error
// that is not permanent none of the commit's changes is made. A permanent one says that a value
// is damaged, which does not concern the others.
type change struct {
	apply   func(tx *bolt.Tx) (refused, err error)
	refused error
}

// commit makes a change durable, or returns why it was refused.
func (s *Store) commit(ctx context.Context, apply func(tx *bolt.Tx) (refused, err error)) error {
	c := &change{apply: apply}
	if err := s.commits.Commit(ctx, c); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return err
		}
		return fmt.Errorf("write %s: %w", s.file.Path(), err)
	}
	return c.refused
}

func (s *Store) commitAll(changes []*change) error {
	return s.file.Update(func(tx *bolt.Tx) error {
		for _, c := range changes {
			var err error
			if c.refused, err = c.apply(tx); event.IsPermanent(err) {
				c.refused, err = err, nil
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// read shows what is durable.
func (s *Store) read(ctx context.Context, look func(tx *bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.file.View(look)
}

// A Sink is the changelog of one pipeline.
type Sink struct {
	store    *Store
	pipeline string
	log      *slog.Logger
}

// Traits implements sink.Sink.
func (s *Sink) Traits() sink.Traits {
	return sink.Traits{Order: sink.AnyOrder, Positions: s, Units: s}
}

// Close implements sink.Sink. The store stays open.
func (s *Sink) Close() error { return nil }

// newToken names a writer or the owner of a unit.
func newToken() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:12])
}

// Open implements sink.Sink.
func (s *Sink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	p := &partitionStore{sink: s, name: partition, token: newToken()}
	entries, err := p.takeOver(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	w, committed := positions.NewNoteWriter(p, entries, s.log)
	return w, committed, nil
}

// Positions implements sink.PositionStore.
func (s *Sink) Positions(ctx context.Context) (map[string]event.Ranges, error) {
	all := map[string]event.Ranges{}
	err := s.store.read(ctx, func(tx *bolt.Tx) error {
		for name := range namesIn(tx.Bucket(partitionsBucket), s.pipeline) {
			entries, err := readEntries(tx, s.pipeline, name)
			if err != nil {
				return err
			}
			all[name] = nil
			for _, e := range entries {
				ranges := all[name]
				ranges.Add(event.Range{First: e.Range.First, Count: e.Range.Count})
				all[name] = ranges
			}
		}
		return nil
	})
	return all, err
}

// SetPosition implements sink.PositionStore. Ranges that remain keep their fingerprints.
func (s *Sink) SetPosition(ctx context.Context, partition string, next uint64) error {
	p := &partitionStore{sink: s, name: partition, token: newToken()}
	return s.store.commit(ctx, func(tx *bolt.Tx) (refused, err error) {
		if _, err := p.raiseEpoch(tx, false); err != nil {
			return nil, err
		}
		entries, err := readEntries(tx, s.pipeline, partition)
		if err != nil {
			return nil, err
		}
		var kept event.Ranges
		for _, e := range entries {
			if e.Range.First < next {
				kept.Add(e.Range.Head(min(e.Range.Count, next-e.Range.First)))
			}
			if err := tx.Bucket(rangesBucket).Delete(rangeKey(s.pipeline, partition, e.Range.First)); err != nil {
				return nil, err
			}
		}
		kept.Add(event.Range{Count: next})
		return nil, putRanges(tx, s.pipeline, partition, kept)
	})
}

var (
	_ sink.UnitStore     = (*Sink)(nil)
	_ sink.PositionStore = (*Sink)(nil)
	_ sink.NoteWriter    = positions.NoteWriter{}
)
