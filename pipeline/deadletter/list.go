package deadletter

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// A page is what is read in one transaction. Between two pages none is held, so
// that whoever lists may change the store meanwhile.
const (
	pageLetters = 256
	pageBytes   = 1 << 20
)

// A Filter says which letters are meant. An empty field means all.
type Filter struct {
	Pipeline  string
	Partition string // that the event was first read from
	Stage     string
	Sink      string
	Text      string    // in the error or the event, in any case of letters
	Since     time.Time // last kept then or later
	Before    time.Time // last kept earlier
	IDs       []string
}

// A found letter is one, and where the file has it.
type found struct {
	Letter
	at    place
	value []byte
}

// List yields letters by pipeline, partition and position, and ends after the
// first error.
func (s *Store) List(f Filter) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		for page, err := range s.pages(f) {
			if err != nil {
				yield(Letter{}, err)
				return
			}
			for _, one := range page {
				if !yield(one.Letter, nil) {
					return
				}
			}
		}
	}
}

// Count is the number of letters that List would yield.
func (s *Store) Count(f Filter) (n int, err error) {
	for page, err := range s.pages(f) {
		if err != nil {
			return 0, err
		}
		n += len(page)
	}
	return n, nil
}

// Sizes counts all letters by pipeline, without reading them.
func (s *Store) Sizes() (map[string]int, error) {
	sizes := make(map[string]int)
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(pipeline []byte, b *bolt.Bucket) error {
			if reserved(pipeline) {
				return nil
			}
			return b.ForEachBucket(func(partition []byte) error {
				sizes[string(pipeline)] += b.Bucket(partition).Stats().KeyN
				return nil
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	return sizes, nil
}

func (s *Store) pages(f Filter) iter.Seq2[[]found, error] {
	f.Text = strings.ToLower(f.Text)
	return func(yield func([]found, error) bool) {
		for from := (place{}); ; {
			letters, next, err := s.page(&f, from)
			if err != nil {
				yield(nil, fmt.Errorf("read dead letters: %w", err))
				return
			}
			if !yield(letters, nil) || next == nil {
				return
			}
			from = *next
		}
	}
}

// page returns the next letters from a place on, and where those after them
// are: nil when there are none.
func (s *Store) page(f *Filter, from place) (letters []found, next *place, err error) {
	size := 0
	err = s.db.View(func(tx *bolt.Tx) error {
		return f.walk(tx, from, func(at place, value []byte) (more bool, err error) {
			if len(letters) == pageLetters || size > pageBytes {
				here := at.clone()
				next = &here
				return false, nil
			}
			l, err := decode(at, value)
			if err != nil {
				return false, err
			}
			if f.matches(&l) {
				l.Uncommitted = isUnsettled(tx, at)
				letters = append(letters, found{l, at.clone(), bytes.Clone(value)})
				size += len(value)
			}
			return true, nil
		})
	})
	return letters, next, err
}

// matches tells whether the filter means a letter. Its text is in lower case.
func (f *Filter) matches(l *Letter) bool {
	switch {
	case f.Partition != "" && f.Partition != l.Partition,
		f.Stage != "" && f.Stage != l.Stage,
		f.Sink != "" && f.Sink != l.Sink,
		!f.Since.IsZero() && l.Time.Before(f.Since),
		!f.Before.IsZero() && !l.Time.Before(f.Before),
		len(f.IDs) > 0 && !slices.Contains(f.IDs, l.ID()):
		return false
	case f.Text == "":
		return true
	}
	return strings.Contains(strings.ToLower(l.Error), f.Text) || bytes.Contains(bytes.ToLower(l.Original), []byte(f.Text))
}

// walk visits the entries of the filter's pipeline in order, from a place on,
// until visit has had enough.
func (f *Filter) walk(tx *bolt.Tx, from place, visit func(at place, value []byte) (more bool, err error)) error {
	pipelines := tx.Cursor()
	for p, _ := pipelines.Seek(from.pipeline); p != nil; p, _ = pipelines.Next() {
		if reserved(p) || f.Pipeline != "" && f.Pipeline != string(p) {
			continue
		}
		if !bytes.Equal(p, from.pipeline) {
			from.partition, from.key = nil, nil
		}
		partitions := tx.Bucket(p).Cursor()
		for t, _ := partitions.Seek(from.partition); t != nil; t, _ = partitions.Next() {
			if !bytes.Equal(t, from.partition) {
				from.key = nil
			}
			entries := bucket(tx, p, t).Cursor()
			for k, v := entries.Seek(from.key); k != nil; k, v = entries.Next() {
				if more, err := visit(place{p, t, k}, v); !more || err != nil {
					return err
				}
			}
		}
	}
	return nil
}
