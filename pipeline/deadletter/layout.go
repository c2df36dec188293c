package deadletter

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/internal/boltfile"
)

// The file holds
//
//	PIPELINE / PARTITION / key                letters
//	\x00unsettled / PIPELINE / PARTITION / key  an empty value for each uncommitted letter
//	\x00queue / PIPELINE / BATCH / position     letters whose retry was requested
//
// PARTITION is the name of the batch for letters that were retried. A file from
// before retries existed has only the first of them: its letters are committed.
// No pipeline's name begins with a zero byte.
var (
	uncommittedBucket = []byte("\x00unsettled")
	queueBucket       = []byte("\x00queue")
)

func isReserved(pipeline []byte) bool { return len(pipeline) > 0 && pipeline[0] == 0 }

// letterKey orders letters by position, and those of one event as they came.
func letterKey(position uint64, ordinal uint32) []byte {
	return binary.BigEndian.AppendUint32(positionKey(position), ordinal)
}

func positionKey(position uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 12), position)
}

func decodePosition(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// A location is where a letter is in the file.
type location struct{ pipeline, partition, key []byte }

func (l location) clone() location {
	return location{bytes.Clone(l.pipeline), bytes.Clone(l.partition), bytes.Clone(l.key)}
}

// A bucketParent contains buckets: a transaction or a bucket.
type bucketParent interface {
	Bucket(name []byte) *bolt.Bucket
	CreateBucketIfNotExists(name []byte) (*bolt.Bucket, error)
}

// findBucket returns the bucket at a path, or nil.
func findBucket(in bucketParent, path ...[]byte) *bolt.Bucket {
	var b *bolt.Bucket
	for _, name := range path {
		if b = in.Bucket(name); b == nil {
			return nil
		}
		in = b
	}
	return b
}

// makeBucket returns the bucket at a path and creates it if necessary.
func makeBucket(in bucketParent, path ...[]byte) (b *bolt.Bucket, err error) {
	for _, name := range path {
		if b, err = in.CreateBucketIfNotExists(name); err != nil {
			return nil, err
		}
		in = b
	}
	return b, nil
}

// checkLayout returns boltfile.ErrDamaged if the file holds something else than the layout has:
// after a power cut on a disk that says it has synced what it has not, a page may hold what
// another level had there.
func checkLayout(tx *bolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		switch {
		case b == nil:
			return boltfile.ErrDamaged
		case bytes.Equal(name, uncommittedBucket), bytes.Equal(name, queueBucket):
			return checkBuckets(b, checkPartitions)
		}
		return checkPartitions(b)
	})
}

// checkPartitions checks the partitions of a pipeline, or its retry queue.
func checkPartitions(pipeline *bolt.Bucket) error {
	return checkBuckets(pipeline, func(b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil || len(k) < len(positionKey(0)) {
				return boltfile.ErrDamaged
			}
			return nil
		})
	})
}

// checkBuckets checks all buckets in b, which has no other keys but those of a retry queue.
func checkBuckets(b *bolt.Bucket, check func(b *bolt.Bucket) error) error {
	return b.ForEach(func(name, v []byte) error {
		below := b.Bucket(name)
		switch {
		case below != nil:
			return check(below)
		case bytes.Equal(name, fillingKey) || bytes.Equal(name, runningKey):
			return nil
		}
		return boltfile.ErrDamaged
	})
}

// hasRange reports whether a bucket, which may be nil, has an entry in [first, end).
func hasRange(b *bolt.Bucket, first, end uint64) bool {
	if b == nil {
		return false
	}
	k, _ := b.Cursor().Seek(positionKey(first))
	return k != nil && decodePosition(k) < end
}

// deleteRange deletes the entries in [first, end) of a bucket, which may be nil.
// It collects the keys first, because deleting through a cursor can make it skip
// entries.
func deleteRange(b *bolt.Bucket, first, end uint64) error {
	if b == nil {
		return nil
	}
	var keys [][]byte
	cursor := b.Cursor()
	for k, _ := cursor.Seek(positionKey(first)); k != nil && decodePosition(k) < end; k, _ = cursor.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
