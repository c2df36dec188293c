package deadletter

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// The retry queue of a pipeline has at most two batches: one that Retry fills,
// and one that the pipeline runs. The letters of the latter keep their positions
// until they are complete. Each batch has a random name, so that a file restored
// from a backup never reuses a name for other letters.
var (
	fillingKey = []byte("open")
	runningKey = []byte("offered")
)

// retryPrefix begins the name of every batch.
const retryPrefix = "retry@"

// IsRetryBatch reports whether a partition is a batch of retries and not a
// partition of the source.
func IsRetryBatch(partition string) bool {
	random, ok := strings.CutPrefix(partition, retryPrefix)
	if !ok || len(random) != 16 {
		return false
	}
	_, err := hex.DecodeString(random)
	return err == nil
}

func newBatchName() []byte {
	var random [8]byte
	rand.Read(random[:])
	return []byte(retryPrefix + hex.EncodeToString(random[:]))
}

// onlySink is the sink in letters of rows from before letters named their sink: it
// means the only sink that the pipeline had.
const onlySink = "?"

// Queued returns the number of requested retries by pipeline.
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
		return nil, fmt.Errorf("count requested retries: %w", err)
	}
	return queued, nil
}

// enqueue moves a letter to the batch that its pipeline's queue fills.
func enqueue(tx *bolt.Tx, stored *storedLetter) error {
	queue, err := makeBucket(tx, queueBucket, stored.at.pipeline)
	if err != nil {
		return err
	}
	name := bytes.Clone(queue.Get(fillingKey))
	if name == nil {
		name = newBatchName()
		if err := queue.Put(fillingKey, name); err != nil {
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
	l := stored.Letter
	l.Retried++
	if l.Sink == "" && (l.Stage == "column" || l.Stage == "sink") {
		l.Sink = onlySink
	}
	key := positionKey(next - 1)
	value, err := l.encode(location{stored.at.pipeline, name, key})
	if err != nil {
		return err
	}
	if err := batch.Put(key, value); err != nil {
		return err
	}
	return deleteLetter(tx, stored.at)
}

// RetryBatch returns the name of the batch of requested retries that the pipeline
// runs, or "" if there is none. The name stays the same until all retries of the
// batch are complete.
func (s *Store) RetryBatch(pipeline string) (partition string, err error) {
	var filling bool
	find := func(tx *bolt.Tx) (queue *bolt.Bucket) {
		if queue = findBucket(tx, queueBucket, []byte(pipeline)); queue != nil {
			partition, filling = string(queue.Get(runningKey)), queue.Get(fillingKey) != nil
		}
		return queue
	}
	err = s.db.View(func(tx *bolt.Tx) error { find(tx); return nil })
	if err == nil && partition == "" && filling {
		err = s.db.Update(func(tx *bolt.Tx) error {
			queue := find(tx)
			if queue == nil || partition != "" || !filling {
				return nil
			}
			next := bytes.Clone(queue.Get(fillingKey))
			partition = string(next)
			if err := queue.Delete(fillingKey); err != nil {
				return err
			}
			return queue.Put(runningKey, next)
		})
	}
	if err != nil {
		return "", fmt.Errorf("find requested retries: %w", err)
	}
	return partition, nil
}

// completeRetries deletes the letters in r from a batch, and the batch with the
// last of them.
func completeRetries(tx *bolt.Tx, pipeline, name []byte, r event.Range) error {
	batch := findBucket(tx, queueBucket, pipeline, name)
	if batch == nil {
		return nil
	}
	if err := deleteRange(batch, r.First, r.End()); err != nil {
		return err
	}
	if k, _ := batch.Cursor().First(); k != nil {
		return nil
	}
	queue := findBucket(tx, queueBucket, pipeline)
	if err := queue.DeleteBucket(name); err != nil {
		return err
	}
	return queue.Delete(runningKey)
}

// A Request says what of a retried event is wanted. Its zero value means all
// rows in all sinks.
type Request struct {
	Sink   string // name of the sink that lacks a row; empty for the whole event
	Number uint32 // of the row, as in event.DeadLetter
	// Row and Document are as in event.DeadLetter.
	Row, Document string
}

// RetryOptions are the arguments of OpenRetries that describe the pipeline.
type RetryOptions struct {
	Pipeline string
	Limits   source.Limits
	Sinks    []string // names of the pipeline's sinks
	// Group returns what the letters of one batch must have in common; nil means nothing. A
	// group is comparable.
	Group func(l *Letter) any
	// Remembered says that the sinks remember ranges. Without it, missing ranges
	// are no sign that a sink lost rows.
	Remembered bool
}

// OpenRetries starts reading a batch of requested retries. done holds the ranges
// that every sink has; a *event.PermanentError names those that a sink has lost.
// A batch without letters left reads as exhausted.
func (s *Store) OpenRetries(o RetryOptions, partition string, done event.Ranges) (*RetryReader, error) {
	r := &RetryReader{store: s, options: o, name: partition}
	var known event.Ranges // positions of letters in the queue and of those that are complete
	err := s.db.View(func(tx *bolt.Tx) error {
		batch := r.bucket(tx)
		if batch == nil {
			return nil
		}
		r.end = batch.Sequence()
		return batch.ForEach(func(k, _ []byte) error {
			known.Add(event.Range{First: decodePosition(k), Count: 1})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("open requested retries: %w", err)
	}
	for _, d := range done {
		known.Add(event.Range{First: d.First, Count: d.Count})
	}
	if lost := known.Missing(event.Range{Count: r.end}); o.Remembered && len(lost) > 0 {
		return nil, &event.PermanentError{
			Err:  fmt.Errorf("a sink lost rows of completed retries: %s of %s", event.Ranges(lost), partition),
			Hint: "the sink was reset to an older state, for example from a backup; the rows are in the state before the reset",
		}
	}
	return r, nil
}

// A RetryReader reads a batch of requested retries. It is not safe for concurrent
// use.
type RetryReader struct {
	store     *Store
	options   RetryOptions
	name      string
	next, end uint64
	group     any // of the last batch
}

// Group returns what RetryOptions.Group returned for the letters of the last batch.
func (r *RetryReader) Group() any { return r.group }

func (r *RetryReader) bucket(tx *bolt.Tx) *bolt.Bucket {
	return findBucket(tx, queueBucket, []byte(r.options.Pipeline), []byte(r.name))
}

// Read fills b with the next retried events and returns what of each is wanted,
// appended to requests[:0]. It returns io.EOF at the end of the batch.
func (r *RetryReader) Read(b *event.Batch, requests []Request) ([]Request, error) {
	b.Reset()
	b.Partition, requests = r.name, requests[:0]
	err := r.store.db.View(func(tx *bolt.Tx) (err error) {
		if bucket := r.bucket(tx); bucket != nil {
			requests, err = r.fill(bucket, b, requests)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read requested retries: %w", err)
	}
	if b.Len() == 0 {
		r.next = r.end
		return nil, io.EOF
	}
	b.Range.Count = uint64(b.Len())
	r.next = b.Range.End()
	return requests, nil
}

// fill adds letters up to the limits, or up to a gap in their positions.
func (r *RetryReader) fill(bucket *bolt.Bucket, b *event.Batch, requests []Request) ([]Request, error) {
	limits, cursor, size := r.options.Limits, bucket.Cursor(), 0
	for k, v := cursor.Seek(positionKey(r.next)); k != nil && b.Len() < limits.Events; k, v = cursor.Next() {
		at := location{[]byte(r.options.Pipeline), []byte(r.name), k}
		l, err := decodeLetter(at, v)
		if err != nil {
			return requests, r.store.damageAt(at, err)
		}
		p := decodePosition(k)
		size += len(l.Original) + len(l.Row) + len(l.Document)
		var group any
		if r.options.Group != nil {
			group = r.options.Group(&l)
		}
		switch {
		case b.Len() == 0:
			b.Range.First, r.group = p, group
		case group != r.group:
			return requests, nil
		case p != b.Range.First+uint64(b.Len()), size > limits.Bytes:
			return requests, nil
		}
		b.Append(l.Original)
		requests = append(requests, r.requestOf(&l))
	}
	return requests, nil
}

func (r *RetryReader) requestOf(l *Letter) Request {
	if l.Sink == "" {
		return Request{}
	}
	request := Request{Sink: l.Sink, Number: l.Number, Row: string(l.Row), Document: string(l.Document)}
	if l.Sink == onlySink && len(r.options.Sinks) > 0 {
		request.Sink = r.options.Sinks[0]
	}
	return request
}

// Lag returns the number of positions behind the last read.
func (r *RetryReader) Lag() uint64 { return r.end - min(r.next, r.end) }
