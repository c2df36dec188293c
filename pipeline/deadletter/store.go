// Package deadletter stores the events that could not be processed, in one file
// of the data folder, and feeds those back to their pipeline whose retry a
// person requested.
//
// A letter belongs to a position of a partition of a pipeline. Replace sets the
// letters of a range to those of one run of the script. A range that runs again
// after an interruption, even if cut differently or with a newer script,
// therefore never keeps a letter of an earlier run. Replace is atomic, and its
// effect survives a crash once it has returned.
//
// A letter is uncommitted until its range is durable in every sink, which the
// pipeline reports by MarkCommitted. Only committed letters can be retried: the
// event of an uncommitted one may be read again anyway. Retry moves each letter,
// in one transaction, to the retry queue of its pipeline. RetryBatch names the
// batch of that queue to run next, and OpenRetries reads it. The name of a batch
// is a partition to the sinks, whose ranges make sure that each retried event is
// written once, whatever is killed when.
//
// A Store is safe for concurrent use. Concurrent writers share a sync of the
// disk.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/internal/boltfile"
	"github.com/perigeedb/perigee/internal/durable"
)

// FileName is the name of the store's file in the data folder.
const FileName = "deadletters.db"

// A Store is an open file of dead letters. Only one process can have it open.
type Store struct {
	db          *boltfile.File
	commits     *durable.GroupCommit[func(tx *bolt.Tx) error]
	commitCount int // written only by commitAll
}

// Open opens the store in the data folder, which must exist. It creates the file
// if necessary.
func Open(folder string) (*Store, error) {
	db, err := boltfile.Open(filepath.Join(folder, FileName), bolt.Options{})
	if err != nil {
		return nil, fmt.Errorf("open the dead letters: %w", err)
	}
	if err := db.View(checkLayout); err != nil {
		return nil, errors.Join(fmt.Errorf("open the dead letters: open %s: %w", db.Path(), err), db.Close())
	}
	s := &Store{db: db}
	s.commits = durable.NewGroupCommit(s.commitAll)
	return s, nil
}

// Close waits for readers and writers and closes the file.
func (s *Store) Close() error { return s.db.Close() }

// releaseInterval is the number of commits after which the process releases the
// file's pages.
const releaseInterval = 64

// commit applies a change in one transaction with those of other waiting writers.
func (s *Store) commit(apply func(tx *bolt.Tx) error) error {
	return s.commits.Commit(context.Background(), apply)
}

func (s *Store) commitAll(changes []func(tx *bolt.Tx) error) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, apply := range changes {
			if err := apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if s.commitCount++; s.commitCount%releaseInterval == 0 {
		_ = s.releasePages() // only saves memory
	}
	return err
}
