// Package boltfile opens a bbolt file of the data folder such that commits that failed, and
// processes that were killed, do not endanger the ones after them.
//
// A commit ends with one of two meta pages. After a sync that failed, or when the process is
// killed before the sync, the system's memory has the new meta page and the disk may have
// the old one. bbolt goes on from the new page, and writes over pages that only the old one
// refers to: a power cut would leave a file without a valid meta page. A reader sees the new
// page, too, and would take changes for durable that are not. So this package writes the meta
// pages again and syncs them before the first commit, and before any access after a commit that
// failed.
//
// Open reads all pages, because bbolt panics on a file whose pages do not belong together.
// Values have no checksum of their own: AppendChecksum adds one.
//
// A File is safe for concurrent use.
package boltfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/perigeedb/perigee/internal/durable"
)

// A File is an open bbolt file. Only one process can have it open.
type File struct {
	*bolt.DB
	writing       sync.Mutex
	metaUncertain atomic.Bool // a commit failed: the meta pages may not be on disk
}

// Open opens a file, and creates it and its name durably. The folder must exist.
func Open(path string, options bolt.Options) (*File, error) {
	options.Timeout = time.Second
	if options.OpenFile == nil {
		options.OpenFile = durable.OpenFile
	}
	if err := create(path, options); err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	var db *bolt.DB
	err := check(path, options)
	if err == nil {
		db, err = bolt.Open(path, 0o600, &options)
	}
	if errors.Is(err, berrors.ErrTimeout) {
		err = errors.New("another process has it open: one engine owns a data folder")
	}
	if err == nil {
		f := &File{DB: db}
		if err = errors.Join(f.syncMetaPages(), durable.SyncDir(filepath.Dir(path))); err == nil {
			return f, nil
		}
		err = errors.Join(err, db.Close())
	}
	return nil, fmt.Errorf("open %s: %w", path, err)
}

// create creates the file under another name, because one that was begun and not synced
// could never be opened again.
func create(path string, options bolt.Options) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bolt.Open(fresh, 0o600, &options)
	if err != nil {
		return err
	}
	return errors.Join(db.Close(), os.Rename(fresh, path))
}

// Update is like that of bolt.DB. The changes of a commit that failed may be there
// afterwards.
func (f *File) Update(change func(tx *bolt.Tx) error) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.syncUncertainMeta(); err != nil {
		return err
	}
	failed := true // also by a panic
	defer func() { f.metaUncertain.Store(failed) }()
	err := f.DB.Update(change)
	failed = err != nil
	return err
}

// View is like that of bolt.DB. After a commit that failed, it first makes durable what it
// shows, or fails: a caller that finds its change there, and therefore does not repeat it, may
// rely on it.
func (f *File) View(read func(tx *bolt.Tx) error) error {
	if f.metaUncertain.Load() {
		f.writing.Lock()
		err := f.syncUncertainMeta()
		f.writing.Unlock()
		if err != nil {
			return err
		}
	}
	return f.DB.View(read)
}

// syncUncertainMeta makes the meta pages durable if a commit failed. The caller holds f.writing.
func (f *File) syncUncertainMeta() error {
	if !f.metaUncertain.Load() {
		return nil
	}
	if err := f.syncMetaPages(); err != nil {
		return err
	}
	f.metaUncertain.Store(false)
	return nil
}

// syncMetaPages makes the meta pages durable as the system shows them. It writes them, because
// after a sync that failed the system takes them for written. A damaged one is restored.
func (f *File) syncMetaPages() error {
	file, err := durable.OpenFile(f.Path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	meta := make([]byte, 2*f.Info().PageSize)
	if _, err = io.ReadFull(file, meta); err == nil {
		restoreMeta(meta)
		_, err = file.WriteAt(meta, 0)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
