package outbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// A change is one entry that is stored (with a value) or removed.
type change struct{ key, value []byte }

// Put stores an entry durably. It takes the place of one with the same pipeline,
// partition and first position. e belongs to the caller again.
func (s *Store) Put(e *Entry) error {
	value, err := encode(e)
	if err != nil {
		return err
	}
	c := change{key: key(e.Pipeline, e.Batch.Partition, e.Batch.Range.First), value: value}
	if err := s.commits.Commit(context.Background(), c); err != nil {
		return fmt.Errorf("write outbox: %w", err)
	}
	return nil
}

// Remove says that every sink has the entry. It is durable after the next Put.
func (s *Store) Remove(pipeline, partition string, first uint64) {
	s.commits.Defer(change{key: key(pipeline, partition, first)})
}

// flush makes removals durable that wait for a Put.
func (s *Store) flush() error {
	if err := s.commits.Flush(); err != nil {
		return fmt.Errorf("write outbox: %w", err)
	}
	return nil
}

func (s *Store) commit(changes []change) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(entries)
		for _, c := range changes {
			if err := c.apply(b); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c change) apply(b *bolt.Bucket) error {
	if c.value == nil {
		return b.Delete(c.key)
	}
	return b.Put(c.key, c.value)
}

// key orders the entries of a partition by position.
func key(pipeline, partition string, first uint64) []byte {
	return binary.BigEndian.AppendUint64(prefix(pipeline, partition), first)
}

// prefix is how the keys of a partition begin. Lengths stand before names, so
// that no partition's prefix is the beginning of another's.
func prefix(pipeline string, partition ...string) []byte {
	var k []byte
	for _, name := range append([]string{pipeline}, partition...) {
		k = binary.AppendUvarint(k, uint64(len(name)))
		k = append(k, name...)
	}
	return k
}

// partitionOf is the partition in a key of pipeline.
func partitionOf(k []byte, pipeline string) []byte {
	rest := bytes.TrimPrefix(k, prefix(pipeline))
	n, size := binary.Uvarint(rest)
	return rest[size : size+int(n)]
}
