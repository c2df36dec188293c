// Package deadletter keeps the events that could not be processed, in one file
// of the data folder, until a person has looked at them, and hands those that
// are to be tried again back to their pipeline.
//
// An entry belongs to a position of a partition of a pipeline. Replace makes
// the entries of a range what one run of it says, so that a range that was
// interrupted and run again, cut differently or with a newer script, never
// leaves an entry of the run that was not committed. What Replace has returned
// from survives a crash; what it was interrupted in happened whole or not at all.
//
// A letter is unsettled until its range is durable in every sink, which the
// source that Join makes finds out. Only settled letters are tried again: the
// event of an unsettled one may be read again anyway. Retry moves letters, each
// in one transaction, into a queue of their pipeline; the queue's batches are
// partitions of the joined source, so that the ranges that sinks keep make each
// letter land once, whatever is killed when.
//
// A Store is safe for concurrent use. Writers that come together share a sync
// of the disk.
package deadletter

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// FileName is the name of the store in the data folder.
const FileName = "deadletters.db"

// A Letter is a dead event and where it belongs. Partition and position are
// those that the event was first read at, also after it was tried again.
type Letter struct {
	Pipeline  string
	Partition string
	First     time.Time // when it was first kept
	Time      time.Time // when it was last kept
	Retried   int       // how often it was tried again
	Uncommitted bool      // its range is not known to be durable: it cannot be tried again yet
	event.Dead
}

// idLength makes it unlikely that two of a million letters share an ID.
const idLength = 10

var idLetters = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// ID names the letter in few characters. It follows from where the letter
// belongs, so it is the same after a rerun and after a retry that failed the
// same way.
func (l *Letter) ID() string {
	var key []byte
	for _, name := range []string{l.Pipeline, l.Partition, l.Sink} {
		key = binary.BigEndian.AppendUint32(key, uint32(len(name)))
		key = append(key, name...)
	}
	key = binary.BigEndian.AppendUint64(key, l.Position)
	key = binary.BigEndian.AppendUint32(key, l.Number)
	sum := sha256.Sum256(key)
	return idLetters.EncodeToString(sum[:])[:idLength]
}

// A Store is an open file of dead letters. One process has it open at a time.
type Store struct {
	db      *bolt.DB
	commits *durable.GroupCommit[func(tx *bolt.Tx) error]
	count   int // of commits
}

// Open opens the store in the data folder, which must exist, and makes the file
// when there is none.
func Open(folder string) (*Store, error) {
	path := filepath.Join(folder, FileName)
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if errors.Is(err, berrors.ErrTimeout) {
		err = errors.New("another process has it open: one engine owns a data folder")
	}
	if err != nil {
		return nil, fmt.Errorf("open dead letters %s: %w", path, err)
	}
	if err := durable.SyncDir(folder); err != nil { // the file's name
		return nil, errors.Join(err, db.Close())
	}
	s := &Store{db: db}
	s.commits = durable.NewGroupCommit(s.commitAll)
	return s, nil
}

// Close waits for readers and writers and closes the file.
func (s *Store) Close() error { return s.db.Close() }
