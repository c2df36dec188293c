package deadletter

import (
	"bytes"
	"fmt"
	"iter"

	bolt "go.etcd.io/bbolt"
)

// List reads this much in one transaction. Between two pages it holds none, so
// that its caller may change the store meanwhile.
const (
	pageLetters = 256
	pageBytes   = 1 << 20
)

// A Filter says which letters are meant. An empty field means all.
type Filter struct {
	Pipeline  string
	Partition string
	Stage     string
}

// List yields letters by pipeline, partition and position, and ends after the
// first error.
func (s *Store) List(f Filter) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		for from := (place{}); ; {
			letters, next, err := s.page(f, from)
			if err != nil {
				yield(Letter{}, fmt.Errorf("read dead letters: %w", err))
				return
			}
			for _, l := range letters {
				if !yield(l, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			from = *next
		}
	}
}

// Count is the number of letters that List would yield.
func (s *Store) Count(f Filter) (n int, err error) {
	for _, err := range s.List(f) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// A place is where an entry is in the file.
type place struct{ pipeline, partition, key []byte }

// page returns the next letters from a place on, and where those after them
// are: nil when there are none.
func (s *Store) page(f Filter, from place) (letters []Letter, next *place, err error) {
	size := 0
	err = s.db.View(func(tx *bolt.Tx) error {
		return f.walk(tx, from, func(at place, value []byte) (more bool, err error) {
			if len(letters) == pageLetters || size > pageBytes {
				next = &place{bytes.Clone(at.pipeline), bytes.Clone(at.partition), bytes.Clone(at.key)}
				return false, nil
			}
			l, err := decode(value)
			if err != nil {
				return false, err
			}
			if f.Stage != "" && f.Stage != l.Stage {
				return true, nil
			}
			l.Pipeline, l.Partition, l.Position = string(at.pipeline), string(at.partition), position(at.key)
			letters = append(letters, l)
			size += len(value)
			return true, nil
		})
	})
	return letters, next, err
}

// walk visits the entries of the filter's partitions in order, from a place on,
// until visit has had enough.
func (f *Filter) walk(tx *bolt.Tx, from place, visit func(at place, value []byte) (more bool, err error)) error {
	pipelines := tx.Cursor()
	for p, _ := pipelines.Seek(from.pipeline); p != nil; p, _ = pipelines.Next() {
		if f.Pipeline != "" && f.Pipeline != string(p) {
			continue
		}
		if !bytes.Equal(p, from.pipeline) {
			from.partition, from.key = nil, nil
		}
		partitions := tx.Bucket(p).Cursor()
		for t, _ := partitions.Seek(from.partition); t != nil; t, _ = partitions.Next() {
			if f.Partition != "" && f.Partition != string(t) {
				continue
			}
			if !bytes.Equal(t, from.partition) {
				from.key = nil
			}
			entries := tx.Bucket(p).Bucket(t).Cursor()
			for k, v := entries.Seek(from.key); k != nil; k, v = entries.Next() {
				if more, err := visit(place{p, t, k}, v); !more || err != nil {
					return err
				}
			}
		}
	}
	return nil
}
