package deadletter

import (
	"bytes"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/boltfile"
)

// A RetryResult counts the letters that Retry selected.
type RetryResult struct {
	Queued      int // moved to the retry queue
	Uncommitted int // left alone, because their events may be read again anyway
}

// Retry moves the committed letters that the filter selects to the retry queues of
// their pipelines. It moves each letter atomically. Letters that fail while Retry
// runs are not selected. It leaves damaged letters alone, and returns an error for
// them after it has moved the others.
func (s *Store) Retry(f Filter) (result RetryResult, err error) {
	if now := time.Now(); f.Before.IsZero() || now.Before(f.Before) {
		f.Before = now
	}
	damaged := 0
	for page, err := range s.readPages(f) {
		if err != nil {
			return result, err
		}
		var moved RetryResult
		err := s.updatePage(page, func(tx *bolt.Tx, l *storedLetter) error {
			if l.Damaged {
				damaged++
				return nil
			}
			if isUncommitted(tx, l.at) {
				moved.Uncommitted++
				return nil
			}
			moved.Queued++
			return enqueue(tx, l)
		})
		if err != nil {
			return result, fmt.Errorf("queue dead letters: %w", err)
		}
		result.Queued += moved.Queued
		result.Uncommitted += moved.Uncommitted
	}
	if damaged > 0 {
		return result, &event.PermanentError{
			Err: fmt.Errorf("%d dead letters in %s were not queued: %w (%d others were queued, %d are not committed yet)",
				damaged, s.db.Path(), boltfile.ErrDamagedValue, result.Queued, result.Uncommitted),
			Hint: "perigee dlq list shows them with the stage " + damagedStage + ": purge them by their IDs, or restore the file from a copy",
		}
	}
	return result, nil
}

// Purge deletes the letters that the filter selects and returns their number.
func (s *Store) Purge(f Filter) (purged int, err error) {
	for page, err := range s.readPages(f) {
		if err != nil {
			return purged, err
		}
		n := 0
		err := s.updatePage(page, func(tx *bolt.Tx, l *storedLetter) error {
			n++
			return deleteLetter(tx, l.at)
		})
		if err != nil {
			return purged, fmt.Errorf("purge dead letters: %w", err)
		}
		purged += n
	}
	return purged, nil
}

// updatePage calls update for the letters of a page, in one transaction. It leaves
// out letters that changed after they were read.
func (s *Store) updatePage(page []storedLetter, update func(tx *bolt.Tx, l *storedLetter) error) error {
	if len(page) == 0 {
		return nil
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		for i := range page {
			l := &page[i]
			b := findBucket(tx, l.at.pipeline, l.at.partition)
			if b == nil || !bytes.Equal(b.Get(l.at.key), l.value) {
				continue
			}
			if err := update(tx, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// deleteLetter deletes a letter and its uncommitted mark.
func deleteLetter(tx *bolt.Tx, at location) error {
	if uncommitted := tx.Bucket(uncommittedBucket); uncommitted != nil {
		if err := deleteKey(uncommitted, at); err != nil {
			return err
		}
	}
	return deleteKey(tx, at)
}

// deleteKey deletes a key, and the bucket of its partition with the last key.
func deleteKey(root bucketParent, at location) error {
	keys := findBucket(root, at.pipeline, at.partition)
	if keys == nil {
		return nil
	}
	if err := keys.Delete(at.key); err != nil {
		return err
	}
	if k, _ := keys.Cursor().First(); k != nil {
		return nil
	}
	return root.Bucket(at.pipeline).DeleteBucket(at.partition)
}
