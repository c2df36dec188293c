package deadletter

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
)

// The queue of a pipeline has one batch that takes letters, and one that is
// offered to the pipeline and takes no more: its letters keep their positions
// until they are done with. Each batch has a random name, so that a file that is
// restored from a backup never uses a name again for other letters.
var (
	openKey    = []byte("open")
	offeredKey = []byte("offered")
)

var batchName = regexp.MustCompile(`^retry@[0-9a-f]{16}$`)

// soleSink stands for the sink of a row's letter from before letters named
// theirs: the only one that the pipeline had.
const soleSink = "?"

// Queued counts the letters that wait to be tried again, by pipeline.
func (s *Store) Queued() (map[string]int, error) {
	queued := make(map[string]int)
	err := s.db.View(func(tx *bolt.Tx) error {
		queues := tx.Bucket(queueBucket)
		if queues == nil {
			return nil
		}
		return queues.ForEachBucket(func(pipeline []byte) error {
			queue := queues.Bucket(pipeline)
			return queue.ForEachBucket(func(batch []byte) error {
				queued[string(pipeline)] += queue.Bucket(batch).Stats().KeyN
				return nil
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("count queued dead letters: %w", err)
	}
	return queued, nil
}

// enqueue moves a letter to the batch of its pipeline that takes letters.
func enqueue(tx *bolt.Tx, one *found) error {
	queue, err := makeBucket(tx, queueBucket, one.at.pipeline)
	if err != nil {
		return err
	}
	name := bytes.Clone(queue.Get(openKey))
	if name == nil {
		name = newBatch()
		if err := queue.Put(openKey, name); err != nil {
			return err
		}
	}
	batch, err := makeBucket(queue, name)
	if err != nil {
		return err
	}
	next, err := batch.NextSequence() // counts from 1
	if err != nil {
		return err
	}
	l := one.Letter
	l.Retried++
	if l.Sink == "" && (l.Stage == "column" || l.Stage == "sink") {
		l.Sink = soleSink
	}
	value, err := l.encode(string(name), next-1)
	if err != nil {
		return err
	}
	if err := batch.Put(positionKey(next-1), value); err != nil {
		return err
	}
	return remove(tx, one.at)
}

func newBatch() []byte {
	var random [8]byte
	rand.Read(random[:])
	return []byte("retry@" + hex.EncodeToString(random[:]))
}

// offer returns the name of the batch that the pipeline is to read, or "".
func (s *Store) offer(pipeline string) (name string, err error) {
	var waiting bool
	look := func(tx *bolt.Tx) (queue *bolt.Bucket) {
		if queue = bucket(tx, queueBucket, []byte(pipeline)); queue != nil {
			name, waiting = string(queue.Get(offeredKey)), queue.Get(openKey) != nil
		}
		return queue
	}
	err = s.db.View(func(tx *bolt.Tx) error { look(tx); return nil })
	if err == nil && name == "" && waiting {
		err = s.db.Update(func(tx *bolt.Tx) error {
			queue := look(tx)
			if queue == nil || name != "" || !waiting {
				return nil
			}
			next := bytes.Clone(queue.Get(openKey))
			name = string(next)
			if err := queue.Delete(openKey); err != nil {
				return err
			}
			return queue.Put(offeredKey, next)
		})
	}
	if err != nil {
		return "", fmt.Errorf("look for dead letters to try again: %w", err)
	}
	return name, nil
}

// finish removes the letters in r from a batch, and the batch when it is empty.
func finish(tx *bolt.Tx, pipeline, name []byte, r event.Range) error {
	batch := bucket(tx, queueBucket, pipeline, name)
	if batch == nil {
		return nil
	}
	if err := clearRange(batch, r.First, r.End()); err != nil {
		return err
	}
	if k, _ := batch.Cursor().First(); k != nil {
		return nil
	}
	queue := bucket(tx, queueBucket, pipeline)
	if err := queue.DeleteBucket(name); err != nil {
		return err
	}
	return queue.Delete(offeredKey)
}
