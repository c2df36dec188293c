// Package outbox keeps what came of a batch until every sink of its pipeline
// has it, in one file of the data folder. A pipeline with several sinks stores
// a batch's outputs here before it writes the first of them: after a crash the
// stored outputs are written to the sinks that lack them, and the script, whose
// answer may be another one by now, does not run again.
//
// What Put has returned from survives a crash. A removal becomes durable with
// the next Put, so that a batch costs one commit and not two: an entry that
// comes back after a crash is one that the sinks say they have.
//
// A Store is safe for concurrent use. Writers that come together share a commit.
package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// FileName is the name of the store in the data folder.
const FileName = "outbox.db"

// An Entry is the part of a batch that ran, and what came of it.
type Entry struct {
	Pipeline string
	Script   string      // name and version of the script that ran
	Sinks    []string    // names of those that Result.Outputs are for
	Batch    event.Batch // as it was read, with the range that the entry settles
	Result   event.Result
}

// A Store is an open outbox. One process has it open at a time.
type Store struct {
	db      *bolt.DB
	commits *durable.GroupCommit[change]
}

var entries = []byte("entries")

// Open opens the outbox in the data folder, which must exist, and makes the
// file when there is none.
func Open(folder string) (*Store, error) {
	path := filepath.Join(folder, FileName)
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
	})
	if errors.Is(err, berrors.ErrTimeout) {
		err = errors.New("another process has it open: one engine owns a data folder")
	}
	if err != nil {
		return nil, fmt.Errorf("open outbox %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(entries)
		return err
	})
	if err == nil {
		err = durable.SyncDir(folder) // the file's name
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make outbox %s: %w", path, err), db.Close())
	}
	s := &Store{db: db}
	s.commits = durable.NewGroupCommit(s.commit)
	return s, nil
}

// Exists tells whether the data folder has an outbox.
func Exists(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, FileName))
	return err == nil
}

// Close makes removals durable and closes the file, after all readers and writers.
func (s *Store) Close() error { return errors.Join(s.flush(), s.db.Close()) }
