// Package outbox stores what a script made of a batch until every sink of its
// pipeline has it, in one file of the data folder. A pipeline with several sinks
// stores the outputs here before it writes the first of them. After a crash it
// writes the stored outputs to the sinks that lack them; the script, which might
// decide differently now, does not run again.
//
// An entry survives a crash once Put has returned. A removal becomes durable with
// the next Put, so that a batch costs one commit and not two. An entry that
// reappears after a crash is harmless: the sinks remember that they have it.
//
// A Store is safe for concurrent use. Concurrent writers share a commit.
package outbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/boltfile"
	"github.com/perigeedb/perigee/internal/durable"
)

// FileName is the name of the store in the data folder.
const FileName = "outbox.db"

// An Entry holds the events of a batch that ran, and the result.
type Entry struct {
	Pipeline string
	Script   string      // name and version of the script that ran
	Sinks    []string    // names of the sinks of Result.Outputs
	Batch    event.Batch // as it was read, without the events that did not run
	Result   event.Result
}

// A Store is an open outbox. Only one process can have it open.
type Store struct {
	db      *boltfile.File
	commits *durable.GroupCommit[change]
}

var entriesBucket = []byte("entries")

// Open opens the outbox in the data folder, which must exist. It creates the file
// if necessary.
func Open(folder string) (*Store, error) {
	db, err := boltfile.Open(filepath.Join(folder, FileName), bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("open the outbox: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(entriesBucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create the outbox: %w", err), db.Close())
	}
	s := &Store{db: db}
	s.commits = durable.NewGroupCommit(s.commitAll)
	return s, nil
}

// Exists reports whether the data folder has an outbox.
func Exists(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, FileName))
	return err == nil
}

// Close makes removals durable and closes the file, after all readers and writers.
func (s *Store) Close() error { return errors.Join(s.flush(), s.db.Close()) }

// Put stores an entry durably. It replaces an entry with the same pipeline,
// partition and first position. It does not keep e.
func (s *Store) Put(e *Entry) error {
	value, err := encodeEntry(e)
	if err != nil {
		return err
	}
	c := change{key: entryKey(e.Pipeline, e.Batch.Partition, e.Batch.Range.First), value: value}
	if err := s.commits.Commit(context.Background(), c); err != nil {
		return fmt.Errorf("write outbox: %w", err)
	}
	return nil
}

// Remove removes an entry that every sink has. The removal becomes durable with
// the next Put.
func (s *Store) Remove(pipeline, partition string, first uint64) {
	s.commits.Defer(change{key: entryKey(pipeline, partition, first)})
}

// RemovePartition removes the entries of a partition durably: sinks that lack them
// must get the events from the source again. Call it when a person sets the
// positions of the sinks, while no pipeline has the partition open.
func (s *Store) RemovePartition(pipeline, partition string) error {
	keys, err := s.listKeys(keyPrefix(pipeline, partition))
	if err != nil {
		return fmt.Errorf("read outbox: %w", err)
	}
	for _, k := range keys {
		s.commits.Defer(change{key: k})
	}
	return s.flush()
}

// Entries yields the entries of a partition in the order of their positions. It
// ends after the first error. No transaction is open while it yields.
func (s *Store) Entries(pipeline, partition string) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		keys, err := s.listKeys(keyPrefix(pipeline, partition))
		for _, k := range keys {
			var e *Entry
			if e, err = s.readEntry(k); err != nil {
				err = s.damageAt(pipeline, partition, k, err)
				break
			}
			if !yield(e, nil) {
				break
			}
		}
		if err != nil {
			yield(nil, fmt.Errorf("read outbox: %w", err))
		}
	}
}

// Partitions returns the partitions of a pipeline that have entries.
func (s *Store) Partitions(pipeline string) (names []string, err error) {
	keys, err := s.listKeys(keyPrefix(pipeline))
	if err != nil {
		return nil, fmt.Errorf("read outbox: %w", err)
	}
	for _, k := range keys {
		name := string(decodePartition(k, pipeline))
		if n := len(names); n == 0 || names[n-1] != name {
			names = append(names, name)
		}
	}
	return names, nil
}

// listKeys returns the keys of the entries that begin with prefix. It commits
// removals first.
func (s *Store) listKeys(prefix []byte) (keys [][]byte, err error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(entriesBucket).Cursor()
		for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			keys = append(keys, bytes.Clone(k))
		}
		return nil
	})
	return keys, err
}

func (s *Store) readEntry(k []byte) (e *Entry, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		e, err = decodeEntry(k, tx.Bucket(entriesBucket).Get(k))
		return err
	})
	return e, err
}

// damageAt says where an entry is damaged, as after a power cut on a disk that says it has synced
// what it has not. Reading it again does not help.
func (s *Store) damageAt(pipeline, partition string, k []byte, err error) error {
	if !errors.Is(err, boltfile.ErrDamagedValue) {
		return err
	}
	return &event.PermanentError{
		Err: fmt.Errorf("the entry of %s, partition %s, position %d in %s: %w",
			pipeline, partition, binary.BigEndian.Uint64(k[len(keyPrefix(pipeline, partition)):]), s.db.Path(), err),
		Hint: "restore " + s.db.Path() + " from a copy, or move it away: sinks that lack the batches in it get them from the source and the current script",
	}
}

// A change stores an entry, or removes it if value is nil.
type change struct{ key, value []byte }

// flush commits removals that wait for a Put.
func (s *Store) flush() error {
	if err := s.commits.Flush(); err != nil {
		return fmt.Errorf("write outbox: %w", err)
	}
	return nil
}

func (s *Store) commitAll(changes []change) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(entriesBucket)
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

// entryKey orders the entries of a partition by position.
func entryKey(pipeline, partition string, first uint64) []byte {
	return binary.BigEndian.AppendUint64(keyPrefix(pipeline, partition), first)
}

// keyPrefix begins the keys of a pipeline or partition. Lengths precede names, so
// that no prefix of a partition begins that of another.
func keyPrefix(pipeline string, partition ...string) []byte {
	var k []byte
	for _, name := range append([]string{pipeline}, partition...) {
		k = binary.AppendUvarint(k, uint64(len(name)))
		k = append(k, name...)
	}
	return k
}

// decodePartition returns the partition in a key of pipeline.
func decodePartition(k []byte, pipeline string) []byte {
	rest := bytes.TrimPrefix(k, keyPrefix(pipeline))
	n, size := binary.Uvarint(rest)
	return rest[size : size+int(n)]
}
