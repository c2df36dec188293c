package deadletter

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"
)

// The file holds
//
//	PIPELINE / PARTITION / key             the letters
//	unsettled / PIPELINE / PARTITION / key  nothing, for each letter that is unsettled
//	queue / PIPELINE / BATCH / position     the letters to be tried again
//
// where PARTITION is the batch's name for letters that were tried again. A
// file from before there was a queue has the first of them only: its letters
// are settled. No pipeline's name begins with the zero byte of the others.
var (
	unsettledBucket = []byte("\x00unsettled")
	queueBucket     = []byte("\x00queue")
)

func reserved(pipeline []byte) bool { return len(pipeline) > 0 && pipeline[0] == 0 }

// key orders entries by position, and those of one event as they came.
func key(position uint64, ordinal uint32) []byte {
	return binary.BigEndian.AppendUint32(positionKey(position), ordinal)
}

func positionKey(position uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 12), position)
}

func position(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// A place is where an entry is in the file.
type place struct{ pipeline, partition, key []byte }

func (p place) clone() place {
	return place{bytes.Clone(p.pipeline), bytes.Clone(p.partition), bytes.Clone(p.key)}
}

// A parent is what buckets are in: a transaction or a bucket.
type parent interface {
	Bucket(name []byte) *bolt.Bucket
	CreateBucketIfNotExists(name []byte) (*bolt.Bucket, error)
}

// bucket returns the bucket at a path, or nil when there is none.
func bucket(in parent, path ...[]byte) *bolt.Bucket {
	var b *bolt.Bucket
	for _, name := range path {
		if b = in.Bucket(name); b == nil {
			return nil
		}
		in = b
	}
	return b
}

// makeBucket returns the bucket at a path, which it makes if it is not there.
func makeBucket(in parent, path ...[]byte) (b *bolt.Bucket, err error) {
	for _, name := range path {
		if b, err = in.CreateBucketIfNotExists(name); err != nil {
			return nil, err
		}
		in = b
	}
	return b, nil
}

// holds tells whether a bucket, which may be nil, has an entry in [first, end).
func holds(b *bolt.Bucket, first, end uint64) bool {
	if b == nil {
		return false
	}
	k, _ := b.Cursor().Seek(positionKey(first))
	return k != nil && position(k) < end
}

// clearRange removes the entries of a bucket, which may be nil, in [first, end).
// A cursor must not delete what it is about to step over, so the keys are
// gathered first.
func clearRange(b *bolt.Bucket, first, end uint64) error {
	if b == nil {
		return nil
	}
	var old [][]byte
	cursor := b.Cursor()
	for k, _ := cursor.Seek(positionKey(first)); k != nil && position(k) < end; k, _ = cursor.Next() {
		old = append(old, bytes.Clone(k))
	}
	for _, k := range old {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
