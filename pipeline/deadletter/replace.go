package deadletter

import (
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
)

// Replace makes dead the only letters for the positions of r, durably and
// atomically. They are uncommitted until MarkCommitted. Replace writes nothing if
// there is nothing to delete and nothing to add. The positions of dead must lie
// in r, and the ranges of concurrent calls must not overlap.
func (s *Store) Replace(pipeline, partition string, r event.Range, dead []event.DeadLetter) error {
	n := &replacement{pipeline: []byte(pipeline), partition: []byte(partition), first: r.First, end: r.End()}
	if err := s.encodeLetters(n, dead); err != nil {
		return fmt.Errorf("dead letters of %s, partition %s, %s: %w", pipeline, partition, r, err)
	}
	if len(dead) == 0 {
		needed, err := s.hasLetters(n)
		if err != nil || !needed {
			return err
		}
	}
	if err := s.commit(n.apply); err != nil {
		return fmt.Errorf("write dead letters: %w", err)
	}
	return nil
}

// A replacement is the change that one Replace makes to the file.
type replacement struct {
	pipeline, partition []byte
	first, end          uint64
	keys, values        [][]byte
}

func (s *Store) encodeLetters(n *replacement, dead []event.DeadLetter) error {
	if len(n.pipeline) == 0 || len(n.partition) == 0 || isReserved(n.pipeline) {
		return errors.New("pipeline and partition need names")
	}
	if len(dead) == 0 {
		return nil
	}
	letters, err := s.makeLetters(n, dead)
	if err != nil {
		return err
	}
	ordinals := make(map[uint64]uint32, len(dead))
	for i := range letters {
		p := dead[i].Position
		if p < n.first || p >= n.end {
			return fmt.Errorf("position %d is outside the range", p)
		}
		key := letterKey(p, ordinals[p])
		value, err := letters[i].encode(location{n.pipeline, n.partition, key})
		if err != nil {
			return err
		}
		n.keys = append(n.keys, key)
		n.values = append(n.values, value)
		ordinals[p]++
	}
	return nil
}

// makeLetters makes letters of dead events. Those of a retry batch continue the
// letters that were retried.
func (s *Store) makeLetters(n *replacement, dead []event.DeadLetter) (letters []Letter, err error) {
	now := time.Now()
	err = s.db.View(func(tx *bolt.Tx) error {
		batch := findBucket(tx, queueBucket, n.pipeline, n.partition)
		for i := range dead {
			l := Letter{Pipeline: string(n.pipeline), Partition: string(n.partition), First: now, Time: now, DeadLetter: dead[i]}
			if batch != nil {
				if err := s.continueRetried(&l, n, batch); err != nil {
					return err
				}
			}
			letters = append(letters, l)
		}
		return nil
	})
	return letters, err
}

// continueRetried copies the identity and history of the retried letter. A retry
// that was for a single row leaves no letter but that row's: the event's other
// rows were written before.
func (s *Store) continueRetried(l *Letter, n *replacement, batch *bolt.Bucket) error {
	k := positionKey(l.Position)
	value := batch.Get(k)
	if value == nil {
		return nil
	}
	at := location{n.pipeline, n.partition, k}
	retried, err := decodeLetter(at, value)
	if err != nil {
		return s.damageAt(at, err)
	}
	l.Partition, l.Position, l.First, l.Retried = retried.Partition, retried.Position, retried.First, retried.Retried
	if retried.Sink != "" {
		l.Number = retried.Number
		if retried.Sink != onlySink || l.Sink == "" {
			l.Sink = retried.Sink
		}
	}
	return nil
}

// hasLetters reports whether there are letters in the range of n.
func (s *Store) hasLetters(n *replacement) (found bool, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		found = hasRange(findBucket(tx, n.pipeline, n.partition), n.first, n.end)
		return nil
	})
	return found, err
}

func (n *replacement) apply(tx *bolt.Tx) error {
	letters, err := makeBucket(tx, n.pipeline, n.partition)
	if err != nil {
		return err
	}
	uncommitted, err := makeBucket(tx, uncommittedBucket, n.pipeline, n.partition)
	if err != nil {
		return err
	}
	if err := deleteRange(letters, n.first, n.end); err != nil {
		return err
	}
	if err := deleteRange(uncommitted, n.first, n.end); err != nil {
		return err
	}
	for i, k := range n.keys {
		if err := letters.Put(k, n.values[i]); err != nil {
			return err
		}
		if err := uncommitted.Put(k, nil); err != nil {
			return err
		}
	}
	return nil
}

// MarkCommitted records that r is durable in every sink: its letters can be
// retried, and the retries in it are complete. It writes nothing if there are
// none.
func (s *Store) MarkCommitted(pipeline, partition string, r event.Range) error {
	p, t := []byte(pipeline), []byte(partition)
	var needed bool
	err := s.db.View(func(tx *bolt.Tx) error {
		needed = hasRange(findBucket(tx, uncommittedBucket, p, t), r.First, r.End()) ||
			hasRange(findBucket(tx, queueBucket, p, t), r.First, r.End())
		return nil
	})
	if err == nil && needed {
		err = s.commit(func(tx *bolt.Tx) error {
			if err := deleteRange(findBucket(tx, uncommittedBucket, p, t), r.First, r.End()); err != nil {
				return err
			}
			return completeRetries(tx, p, t, r)
		})
	}
	if err != nil {
		return fmt.Errorf("mark dead letters of %s, partition %s, %s as committed: %w", pipeline, partition, r, err)
	}
	return nil
}

func isUncommitted(tx *bolt.Tx, at location) bool {
	b := findBucket(tx, uncommittedBucket, at.pipeline, at.partition)
	if b == nil {
		return false
	}
	k, _ := b.Cursor().Seek(at.key)
	return string(k) == string(at.key)
}
