package deadletter

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

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

// An Outcome is what became of the letters that a filter means.
type Outcome struct {
	Queued    int // to be tried again
	Unsettled int // left alone: their events may be read again anyway
}

// Retry puts the settled letters that the filter means into the queues of their
// pipelines. Each letter moves whole or not at all, whatever is killed. Letters
// that are kept while Retry works are not meant.
func (s *Store) Retry(f Filter) (o Outcome, err error) {
	if now := time.Now(); f.Before.IsZero() || now.Before(f.Before) {
		f.Before = now
	}
	for page, err := range s.pages(f) {
		if err != nil {
			return o, err
		}
		queued, unsettled := 0, 0
		err := s.change(page, func(tx *bolt.Tx, one *found) error {
			if isUnsettled(tx, one.at) {
				unsettled++
				return nil
			}
			queued++
			return enqueue(tx, one)
		})
		if err != nil {
			return o, fmt.Errorf("queue dead letters: %w", err)
		}
		o.Queued += queued
		o.Unsettled += unsettled
	}
	return o, nil
}

// Purge deletes the letters that the filter means and returns how many.
func (s *Store) Purge(f Filter) (purged int, err error) {
	for page, err := range s.pages(f) {
		if err != nil {
			return purged, err
		}
		n := 0
		err := s.change(page, func(tx *bolt.Tx, one *found) error {
			n++
			return remove(tx, one.at)
		})
		if err != nil {
			return purged, fmt.Errorf("purge dead letters: %w", err)
		}
		purged += n
	}
	return purged, nil
}

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

// Resolve completes IDs that are given by their first characters. Each must name
// one letter.
func (s *Store) Resolve(prefixes []string) ([]string, error) {
	hits := make([][]string, len(prefixes))
	for l, err := range s.List(Filter{}) {
		if err != nil {
			return nil, err
		}
		id := l.ID()
		for i, prefix := range prefixes {
			if strings.HasPrefix(id, strings.ToLower(prefix)) && prefix != "" && !slices.Contains(hits[i], id) {
				hits[i] = append(hits[i], id)
			}
		}
	}
	var ids []string
	for i, hit := range hits {
		switch len(hit) {
		case 0:
			return nil, fmt.Errorf("there is no dead letter %q", prefixes[i])
		case 1:
			ids = append(ids, hit[0])
		default:
			return nil, fmt.Errorf("%q is the beginning of %d dead letters, %s and %s among them", prefixes[i], len(hit), hit[0], hit[1])
		}
	}
	return ids, nil
}

// change visits the letters of a page in one transaction, but those that have
// been replaced or taken since they were read.
func (s *Store) change(page []found, visit func(tx *bolt.Tx, one *found) error) error {
	if len(page) == 0 {
		return nil
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		for i := range page {
			one := &page[i]
			b := bucket(tx, one.at.pipeline, one.at.partition)
			if b == nil || !bytes.Equal(b.Get(one.at.key), one.value) {
				continue
			}
			if err := visit(tx, one); err != nil {
				return err
			}
		}
		return nil
	})
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

// remove deletes a letter, and what was only there for it.
func remove(tx *bolt.Tx, at place) error {
	if unsettled := tx.Bucket(unsettledBucket); unsettled != nil {
		if err := removeFrom(unsettled, at); err != nil {
			return err
		}
	}
	return removeFrom(tx, at)
}

// removeFrom deletes the key, and the partition when nothing is left of it.
func removeFrom(root parent, at place) error {
	keys := bucket(root, at.pipeline, at.partition)
	if keys == nil {
		return nil
	}
	if err := keys.Delete(at.key); err != nil {
		return err
	}
	if k, _ := keys.Cursor().First(); k != nil {
		return nil
	}
	return root.Bucket(at.pipeline).DeleteBucket(at.partition)
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
