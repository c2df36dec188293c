package deadletter

import (
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
)

// Replace makes dead the only entries for the positions of r, durably and
// either whole or not at all. They are unsettled until the joined source is told
// that r is durable. It costs no write when there is nothing to remove and
// nothing to add. The positions of dead must lie in r, and writers that come at
// the same time must come with ranges that do not overlap.
func (s *Store) Replace(pipeline, partition string, r event.Range, dead []event.Dead) error {
	n := &renewal{pipeline: []byte(pipeline), partition: []byte(partition), first: r.First, end: r.End()}
	if err := s.encode(n, dead); err != nil {
		return fmt.Errorf("dead letters of %s, partition %s, %s: %w", pipeline, partition, r, err)
	}
	if len(dead) == 0 {
		kept, err := s.any(n)
		if err != nil || !kept {
			return err
		}
	}
	if err := s.commit(n.apply); err != nil {
		return fmt.Errorf("write dead letters: %w", err)
	}
	return nil
}

// A renewal is what one Replace does to the file.
type renewal struct {
	pipeline, partition []byte
	first, end          uint64
	keys, values        [][]byte
}

func (s *Store) encode(n *renewal, dead []event.Dead) error {
	if len(n.pipeline) == 0 || len(n.partition) == 0 || reserved(n.pipeline) {
		return errors.New("pipeline and partition need names")
	}
	if len(dead) == 0 {
		return nil
	}
	letters, err := s.letters(n, dead)
	if err != nil {
		return err
	}
	seen := make(map[uint64]uint32, len(dead))
	for i := range letters {
		p := dead[i].Position
		if p < n.first || p >= n.end {
			return fmt.Errorf("position %d is outside the range", p)
		}
		value, err := letters[i].encode(string(n.partition), p)
		if err != nil {
			return err
		}
		n.keys = append(n.keys, key(p, seen[p]))
		n.values = append(n.values, value)
		seen[p]++
	}
	return nil
}

// letters makes letters of dead. Those of the queue go on as the letters that
// were tried again.
func (s *Store) letters(n *renewal, dead []event.Dead) (letters []Letter, err error) {
	now := time.Now()
	err = s.db.View(func(tx *bolt.Tx) error {
		batch := bucket(tx, queueBucket, n.pipeline, n.partition)
		for i := range dead {
			l := Letter{Pipeline: string(n.pipeline), Partition: string(n.partition), First: now, Time: now, Dead: dead[i]}
			if batch != nil {
				if err := l.continues(n, batch); err != nil {
					return err
				}
			}
			letters = append(letters, l)
		}
		return nil
	})
	return letters, err
}

// continues takes over what was known before from the letter in the queue. One
// that was tried again for a single row stays the letter of that row: the others
// have landed.
func (l *Letter) continues(n *renewal, batch *bolt.Bucket) error {
	k := positionKey(l.Position)
	value := batch.Get(k)
	if value == nil {
		return nil
	}
	before, err := decode(place{n.pipeline, n.partition, k}, value)
	if err != nil {
		return err
	}
	l.Partition, l.Position, l.First, l.Retried = before.Partition, before.Position, before.First, before.Retried
	if l.Sink == "" {
		l.Sink, l.Number = before.Sink, before.Number
	}
	return nil
}

// any tells whether there are entries in the range of n.
func (s *Store) any(n *renewal) (found bool, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		found = holds(bucket(tx, n.pipeline, n.partition), n.first, n.end)
		return nil
	})
	return found, err
}

func (n *renewal) apply(tx *bolt.Tx) error {
	letters, err := makeBucket(tx, n.pipeline, n.partition)
	if err != nil {
		return err
	}
	unsettled, err := makeBucket(tx, unsettledBucket, n.pipeline, n.partition)
	if err != nil {
		return err
	}
	if err := clearRange(letters, n.first, n.end); err != nil {
		return err
	}
	if err := clearRange(unsettled, n.first, n.end); err != nil {
		return err
	}
	for i, k := range n.keys {
		if err := letters.Put(k, n.values[i]); err != nil {
			return err
		}
		if err := unsettled.Put(k, nil); err != nil {
			return err
		}
	}
	return nil
}
