package deadletter

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// An RetryResult is what became of the letters that a filter means.
type RetryResult struct {
	Queued    int // to be tried again
	Uncommitted int // left alone: their events may be read again anyway
}

// Retry puts the settled letters that the filter means into the queues of their
// pipelines. Each letter moves whole or not at all, whatever is killed. Letters
// that are kept while Retry works are not meant.
func (s *Store) Retry(f Filter) (o RetryResult, err error) {
	if now := time.Now(); f.Before.IsZero() || now.Before(f.Before) {
		f.Before = now
	}
	for page, err := range s.pages(f) {
		if err != nil {
			return o, err
		}
		queued, unsettled := 0, 0
		err := s.change(page, func(tx *bolt.Tx, one *found) error {
			if isUnsettled(tx, one.at) {
				unsettled++
				return nil
			}
			queued++
			return enqueue(tx, one)
		})
		if err != nil {
			return o, fmt.Errorf("queue dead letters: %w", err)
		}
		o.Queued += queued
		o.Uncommitted += unsettled
	}
	return o, nil
}

// Purge deletes the letters that the filter means and returns how many.
func (s *Store) Purge(f Filter) (purged int, err error) {
	for page, err := range s.pages(f) {
		if err != nil {
			return purged, err
		}
		n := 0
		err := s.change(page, func(tx *bolt.Tx, one *found) error {
			n++
			return remove(tx, one.at)
		})
		if err != nil {
			return purged, fmt.Errorf("purge dead letters: %w", err)
		}
		purged += n
	}
	return purged, nil
}

// Resolve completes IDs that are given by their first characters. Each must name
// one letter.
func (s *Store) Resolve(prefixes []string) ([]string, error) {
	hits := make([][]string, len(prefixes))
	for l, err := range s.List(Filter{}) {
		if err != nil {
			return nil, err
		}
		id := l.ID()
		for i, prefix := range prefixes {
			if strings.HasPrefix(id, strings.ToLower(prefix)) && prefix != "" && !slices.Contains(hits[i], id) {
				hits[i] = append(hits[i], id)
			}
		}
	}
	var ids []string
	for i, hit := range hits {
		switch len(hit) {
		case 0:
			return nil, fmt.Errorf("there is no dead letter %q", prefixes[i])
		case 1:
			ids = append(ids, hit[0])
		default:
			return nil, fmt.Errorf("%q is the beginning of %d dead letters, %s and %s among them", prefixes[i], len(hit), hit[0], hit[1])
		}
	}
	return ids, nil
}

// change visits the letters of a page in one transaction, but those that have
// been replaced or taken since they were read.
func (s *Store) change(page []found, visit func(tx *bolt.Tx, one *found) error) error {
	if len(page) == 0 {
		return nil
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		for i := range page {
			one := &page[i]
			b := bucket(tx, one.at.pipeline, one.at.partition)
			if b == nil || !bytes.Equal(b.Get(one.at.key), one.value) {
				continue
			}
			if err := visit(tx, one); err != nil {
				return err
			}
		}
		return nil
	})
}

// remove deletes a letter, and what was only there for it.
func remove(tx *bolt.Tx, at place) error {
	if unsettled := tx.Bucket(unsettledBucket); unsettled != nil {
		if err := removeFrom(unsettled, at); err != nil {
			return err
		}
	}
	return removeFrom(tx, at)
}

// removeFrom deletes the key, and the partition when nothing is left of it.
func removeFrom(root parent, at place) error {
	keys := bucket(root, at.pipeline, at.partition)
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
