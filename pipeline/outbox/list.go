package outbox

import (
	"bytes"
	"fmt"
	"iter"

	bolt "go.etcd.io/bbolt"
)

// Entries yields the entries of a partition in the order of their positions,
// and ends after the first error. It holds no transaction while it yields.
func (s *Store) Entries(pipeline, partition string) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		keys, err := s.keys(prefix(pipeline, partition))
		for _, k := range keys {
			var e *Entry
			if e, err = s.entry(k); err != nil || !yield(e, nil) {
				break
			}
		}
		if err != nil {
			yield(nil, fmt.Errorf("read outbox: %w", err))
		}
	}
}

// Partitions names those partitions of a pipeline that have entries.
func (s *Store) Partitions(pipeline string) (names []string, err error) {
	keys, err := s.keys(prefix(pipeline))
	if err != nil {
		return nil, fmt.Errorf("read outbox: %w", err)
	}
	for _, k := range keys {
		name := string(partitionOf(k, pipeline))
		if n := len(names); n == 0 || names[n-1] != name {
			names = append(names, name)
		}
	}
	return names, nil
}

// Forget removes the entries of a partition durably: what the sinks lack of
// them must come from the source again. It is for a person who sets the sinks'
// positions while no pipeline has the partition open.
func (s *Store) Forget(pipeline, partition string) error {
	keys, err := s.keys(prefix(pipeline, partition))
	if err != nil {
		return fmt.Errorf("read outbox: %w", err)
	}
	for _, k := range keys {
		s.commits.Defer(change{key: k})
	}
	return s.flush()
}

// keys returns those that begin with p, without the entries that were removed.
func (s *Store) keys(p []byte) (keys [][]byte, err error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(entries).Cursor()
		for k, _ := c.Seek(p); k != nil && bytes.HasPrefix(k, p); k, _ = c.Next() {
			keys = append(keys, bytes.Clone(k))
		}
		return nil
	})
	return keys, err
}

func (s *Store) entry(k []byte) (e *Entry, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		e, err = decode(tx.Bucket(entries).Get(k))
		return err
	})
	return e, err
}
