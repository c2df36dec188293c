package deadletter

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"
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
