package deadletter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
)

// Replace makes dead the only entries for the positions of r, durably and
// either whole or not at all. It costs no write when there is nothing to remove
// and nothing to add. The positions of dead must lie in r, and writers that
// come at the same time must come with ranges that do not overlap.
func (s *Store) Replace(pipeline, partition string, r event.Range, dead []event.Dead) error {
	c := &change{pipeline: []byte(pipeline), partition: []byte(partition), first: r.First, end: r.End()}
	if err := c.add(dead, time.Now()); err != nil {
		return fmt.Errorf("dead letters of %s, partition %s, %s: %w", pipeline, partition, r, err)
	}
	if len(dead) == 0 {
		kept, err := s.any(c)
		if err != nil || !kept {
			return err
		}
	}
	if err := s.commit(c); err != nil {
		return fmt.Errorf("write dead letters: %w", err)
	}
	return nil
}

// A change is what one Replace does to the file.
type change struct {
	pipeline, partition []byte
	first, end          uint64
	keys, values        [][]byte
	done                bool
	err                 error
}

func (c *change) add(dead []event.Dead, now time.Time) error {
	if len(c.pipeline) == 0 || len(c.partition) == 0 {
		return errors.New("pipeline and partition need names")
	}
	seen := make(map[uint64]uint32, len(dead))
	for i := range dead {
		d := &dead[i]
		if d.Position < c.first || d.Position >= c.end {
			return fmt.Errorf("position %d is outside the range", d.Position)
		}
		value, err := encode(d, now)
		if err != nil {
			return err
		}
		c.keys = append(c.keys, key(d.Position, seen[d.Position]))
		c.values = append(c.values, value)
		seen[d.Position]++
	}
	return nil
}

// key orders entries by position, and those of one event as they came.
func key(position uint64, ordinal uint32) []byte {
	k := binary.BigEndian.AppendUint64(make([]byte, 0, 12), position)
	return binary.BigEndian.AppendUint32(k, ordinal)
}

func position(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// any tells whether there are entries in the range of c.
func (s *Store) any(c *change) (found bool, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		if b := bucket(tx, c.pipeline, c.partition); b != nil {
			k, _ := b.Cursor().Seek(key(c.first, 0))
			found = k != nil && position(k) < c.end
		}
		return nil
	})
	return found, err
}

// bucket returns the entries of a partition, or nil when there never were any.
func bucket(tx *bolt.Tx, pipeline, partition []byte) *bolt.Bucket {
	if b := tx.Bucket(pipeline); b != nil {
		return b.Bucket(partition)
	}
	return nil
}

// commit puts c into the next transaction. Whoever gets the turn commits for
// all who wait: what arrives during one commit is the next.
func (s *Store) commit(c *change) error {
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()

	s.turn.Lock()
	defer s.turn.Unlock()
	if c.done {
		return c.err
	}
	s.mu.Lock()
	all := s.waiting
	s.waiting = nil
	s.mu.Unlock()

	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, c := range all {
			if err := c.apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range all {
		c.done, c.err = true, err
	}
	return err
}

func (c *change) apply(tx *bolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists(c.pipeline)
	if err != nil {
		return err
	}
	if b, err = b.CreateBucketIfNotExists(c.partition); err != nil {
		return err
	}
	if err := c.clear(b); err != nil {
		return err
	}
	for i, k := range c.keys {
		if err := b.Put(k, c.values[i]); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the entries in the range. A cursor must not delete what it is
// about to step over, so the keys are gathered first.
func (c *change) clear(b *bolt.Bucket) error {
	var old [][]byte
	cursor := b.Cursor()
	for k, _ := cursor.Seek(key(c.first, 0)); k != nil && position(k) < c.end; k, _ = cursor.Next() {
		old = append(old, bytes.Clone(k))
	}
	for _, k := range old {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
