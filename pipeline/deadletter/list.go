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

// Limits of a page, which is read in one transaction. No transaction is open
// between pages, so a caller may change the store while it lists.
const (
	pageLetters = 256
	pageBytes   = 1 << 20
)

// A Filter selects letters. An empty field selects all.
type Filter struct {
	Pipeline  string
	Partition string // from which the event was first read
	Stage     string
	Sink      string
	Text      string    // in the error or the event, ignoring case
	Since     time.Time // last failed then or later
	Before    time.Time // last failed earlier
	IDs       []string
}

// A storedLetter is a letter, its location and its stored form.
type storedLetter struct {
	Letter
	at    location
	value []byte
}

// List yields letters in the order of pipeline, partition and position, damaged ones
// too. It ends after the first error.
func (s *Store) List(f Filter) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		for page, err := range s.readPages(f) {
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

// Count returns the number of letters that List would yield.
func (s *Store) Count(f Filter) (n int, err error) {
	for page, err := range s.readPages(f) {
		if err != nil {
			return 0, err
		}
		n += len(page)
	}
	return n, nil
}

// Sizes returns the number of letters by pipeline, without reading them.
func (s *Store) Sizes() (map[string]int, error) {
	sizes := make(map[string]int)
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(pipeline []byte, b *bolt.Bucket) error {
			if isReserved(pipeline) {
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

func (s *Store) readPages(f Filter) iter.Seq2[[]storedLetter, error] {
	f.Text = strings.ToLower(f.Text)
	return func(yield func([]storedLetter, error) bool) {
		for from := (location{}); ; {
			letters, next, err := s.readPage(&f, from)
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

// readPage returns the next letters from a location on, and the location of the
// page after them, or nil.
func (s *Store) readPage(f *Filter, from location) (letters []storedLetter, next *location, err error) {
	size := 0
	err = s.db.View(func(tx *bolt.Tx) error {
		return f.visitEntries(tx, from, func(at location, value []byte) (more bool, err error) {
			if len(letters) == pageLetters || size > pageBytes {
				here := at.clone()
				next = &here
				return false, nil
			}
			l, err := decodeLetter(at, value)
			if err != nil {
				l = damagedLetter(at, fmt.Errorf("in %s: %w; purge it, or restore the file from a copy", s.db.Path(), err))
			}
			if f.matches(&l) {
				l.Uncommitted = isUncommitted(tx, at)
				letters = append(letters, storedLetter{l, at.clone(), bytes.Clone(value)})
				size += len(value)
			}
			return true, nil
		})
	})
	return letters, next, err
}

// matches reports whether the filter selects a letter. f.Text must be in lower case.
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

// visitEntries visits the entries of the filter's pipeline in order, from a
// location on, until visit returns false.
func (f *Filter) visitEntries(tx *bolt.Tx, from location, visit func(at location, value []byte) (more bool, err error)) error {
	pipelines := tx.Cursor()
	for p, _ := pipelines.Seek(from.pipeline); p != nil; p, _ = pipelines.Next() {
		if isReserved(p) || f.Pipeline != "" && f.Pipeline != string(p) {
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
			entries := findBucket(tx, p, t).Cursor()
			for k, v := entries.Seek(from.key); k != nil; k, v = entries.Next() {
				if more, err := visit(location{p, t, k}, v); !more || err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Resolve completes IDs given by their first characters. Each must select one
// letter.
func (s *Store) Resolve(prefixes []string) ([]string, error) {
	matches := make([][]string, len(prefixes))
	for l, err := range s.List(Filter{}) {
		if err != nil {
			return nil, err
		}
		id := l.ID()
		for i, prefix := range prefixes {
			if strings.HasPrefix(id, strings.ToLower(prefix)) && prefix != "" && !slices.Contains(matches[i], id) {
				matches[i] = append(matches[i], id)
			}
		}
	}
	var ids []string
	for i, match := range matches {
		switch len(match) {
		case 0:
			return nil, fmt.Errorf("no dead letter has the ID %q", prefixes[i])
		case 1:
			ids = append(ids, match[0])
		default:
			return nil, fmt.Errorf("the ID %q is ambiguous: it begins %d IDs, including %s and %s", prefixes[i], len(match), match[0], match[1])
		}
	}
	return ids, nil
}
