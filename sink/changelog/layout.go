package changelog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/boltfile"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// The buckets. Keys begin with the names of the pipeline and of the partition or unit, each behind
// its length.
var (
	partitionsBucket = []byte("partitions") // an owner
	rangesBucket     = []byte("ranges")     // by first position: seconds, count, fingerprints
	unitsBucket      = []byte("units")      // a unitRecord
	notesBucket      = []byte("notes")      // by number: sum, length, data
	buckets          = [][]byte{partitionsBucket, rangesBucket, unitsBucket, notesBucket}
)

// An owner is the last one of a partition or unit.
type owner struct {
	Epoch uint64 `json:"epoch"`
	Token string `json:"owner"`
}

// A unitRecord is what is known of a unit. Bytes are those of the notes from First to Last.
type unitRecord struct {
	owner
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Bytes uint64 `json:"bytes"`
}

func (r *unitRecord) status() sink.UnitStatus {
	return sink.UnitStatus{Owner: r.Token, First: r.First, Last: r.Last, Bytes: r.Bytes}
}

// nameKey is the key of a partition or unit.
func nameKey(pipeline, name string) []byte {
	return appendName(appendName(nil, pipeline), name)
}

func appendName(k []byte, name string) []byte {
	return append(binary.AppendUvarint(k, uint64(len(name))), name...)
}

func rangeKey(pipeline, partition string, first uint64) []byte {
	return binary.BigEndian.AppendUint64(nameKey(pipeline, partition), first)
}

func noteKey(pipeline, unit string, number uint64) []byte {
	return binary.BigEndian.AppendUint64(nameKey(pipeline, unit), number)
}

// namesIn yields the partitions or units of a pipeline that have a record in a bucket.
func namesIn(b *bolt.Bucket, pipeline string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		prefix, c := appendName(nil, pipeline), b.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			_, size := binary.Uvarint(k[len(prefix):])
			if !yield(string(k[len(prefix)+size:]), v) {
				return
			}
		}
	}
}

// putRecord stores a record as JSON with its checksum.
func putRecord(tx *bolt.Tx, bucket, key []byte, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put(key, boltfile.AppendChecksum(value, bucket, key))
}

// getRecord reads what putRecord has stored, and reports whether it is there.
func getRecord(tx *bolt.Tx, bucket, key []byte, into any) (found bool, err error) {
	value := tx.Bucket(bucket).Get(key)
	if value == nil {
		return false, nil
	}
	content, err := boltfile.VerifyChecksum(value, bucket, key)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return false, damage(tx, fmt.Sprintf("the record %q in %s", key, bucket), err)
	}
	return true, nil
}

// damage is the permanent error of a value that is not what was stored, as after a power cut on a
// disk that says it has synced what it has not.
func damage(tx *bolt.Tx, what string, err error) error {
	return &event.PermanentError{
		Err:  fmt.Errorf("%s of %s: %w", what, tx.DB().Path(), err),
		Hint: "restore the data folder from a backup",
	}
}

const rangeHeader = 16 // seconds, count

// putRanges stores ranges that are committed now.
func putRanges(tx *bolt.Tx, pipeline, partition string, ranges []event.Range) error {
	now := uint64(time.Now().Unix())
	for _, r := range ranges {
		value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, now), r.Count)
		for _, fingerprint := range r.Fingerprints {
			value = binary.LittleEndian.AppendUint32(value, fingerprint)
		}
		key := rangeKey(pipeline, partition, r.First)
		if err := tx.Bucket(rangesBucket).Put(key, boltfile.AppendChecksum(value, rangesBucket, key)); err != nil {
			return err
		}
	}
	return nil
}

// readEntries reads the committed ranges of a partition.
func readEntries(tx *bolt.Tx, pipeline, partition string) (entries []positions.Entry, err error) {
	prefix, c := nameKey(pipeline, partition), tx.Bucket(rangesBucket).Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		e, err := readEntry(k, v)
		if err != nil {
			return nil, damage(tx, fmt.Sprintf("a range of partition %s", partition), err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func readEntry(k, v []byte) (e positions.Entry, err error) {
	v, err = boltfile.VerifyChecksum(v, rangesBucket, k)
	if err != nil {
		return e, err
	}
	if len(v) < rangeHeader {
		return e, boltfile.ErrDamagedValue
	}
	seconds := int64(binary.BigEndian.Uint64(v))
	e.Age = max(0, time.Since(time.Unix(seconds, 0)))
	e.Range = event.Range{First: binary.BigEndian.Uint64(k[len(k)-8:]), Count: binary.BigEndian.Uint64(v[8:])}
	e.Range.Fingerprints, err = positions.DecodeFingerprints(e.Range, v[rangeHeader:])
	return e, err
}

const noteHeader = 16 // sum, length

func putNote(tx *bolt.Tx, pipeline, unit string, note *sink.Note) error {
	key := noteKey(pipeline, unit, note.Number)
	value := make([]byte, 0, noteHeader+len(note.Data)+64)
	value = binary.BigEndian.AppendUint64(value, note.Sum)
	value = binary.BigEndian.AppendUint64(value, uint64(len(note.Data)))
	value = append(value, note.Data...)
	return tx.Bucket(notesBucket).Put(key, boltfile.AppendChecksum(value, notesBucket, key))
}

var errMissing = errors.New("it is missing")

// readNote copies a note.
func readNote(tx *bolt.Tx, pipeline, unit string, number uint64) (*sink.Note, error) {
	key := noteKey(pipeline, unit, number)
	value := tx.Bucket(notesBucket).Get(key)
	if value == nil {
		return nil, errMissing
	}
	value, err := boltfile.VerifyChecksum(value, notesBucket, key)
	if err == nil && (len(value) < noteHeader || binary.BigEndian.Uint64(value[8:]) != uint64(len(value)-noteHeader)) {
		err = boltfile.ErrDamagedValue
	}
	if err != nil {
		return nil, err
	}
	return &sink.Note{Number: number, Sum: binary.BigEndian.Uint64(value), Data: bytes.Clone(value[noteHeader:])}, nil
}
