package nodedb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"
)

// Options are the settings of a store. Zero fields mean the defaults.
type Options struct {
	ReadOnly bool
	// FlushInterval is how long changes that no transaction makes durable may wait; default
	// 10 ms.
	FlushInterval time.Duration
	// TransactionBytes bounds the memory of the changes of one transaction; default 256 MiB.
	TransactionBytes int64
	// PendingBytes bounds the memory of changes that are not yet durable; default 256 MiB.
	// Writers wait when it is reached.
	PendingBytes int64
	// NoWait lets Update return before the changes are durable: they are after FlushInterval, or
	// when Sync returns.
	NoWait bool
	// Verify holds each value that is read from the file against its checksum. Stores that a version
	// before checksums made have none.
	Verify bool
	// NoSync lets the operating system decide when it writes to the disk. A crash of the machine
	// can lose the store.
	NoSync bool
}

// A Store is an open folder. It is safe for concurrent use.
type Store struct {
	folder   string
	core     nativeStore
	readOnly bool
	noWait   bool

	mu     sync.Mutex // guards
	closed bool
	open   int             // sessions that are not free, and other users
	free   []nativeSession // that Update and View use
}

// Open opens the store in a folder, and creates it unless the options say read-only. Several
// processes may have it open.
func Open(folder string, o Options) (*Store, error) {
	core, err := openCore(folder, o)
	if err != nil {
		return nil, named(err, "open "+folder, Path{})
	}
	return &Store{folder: folder, core: core, readOnly: o.ReadOnly, noWait: o.NoWait}, nil
}

// Close makes all changes durable and closes the store. It fails, and the store stays open, while
// sessions are open or transactions run.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &Error{Op: "close " + s.folder, Err: ErrClosed}
	}
	if s.open > 0 {
		return fmt.Errorf("node database: close %s: %d sessions or transactions are open", s.folder, s.open)
	}
	s.closed = true
	for _, session := range s.free {
		session.close()
	}
	s.free = nil
	return named(s.core.close(), "close "+s.folder, Path{})
}

// Folder returns the folder as Open was given it.
func (s *Store) Folder() string { return s.folder }

// Native returns the ndb_store of nodedb.h, for C code that gets its functions from Functions. It is
// valid until release is called, and Close fails until then.
func (s *Store) Native() (store unsafe.Pointer, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, &Error{Op: "use " + s.folder, Err: ErrClosed}
	}
	s.open++
	return nativeAddress(s.core), sync.OnceFunc(s.forget), nil
}

// acquire returns a session for a transaction.
func (s *Store) acquire() (nativeSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &Error{Err: ErrClosed}
	}
	s.open++
	if n := len(s.free); n > 0 {
		session := s.free[n-1]
		s.free = s.free[:n-1]
		return session, nil
	}
	session, err := s.core.session()
	if err != nil {
		s.open--
		return nil, err
	}
	if s.readOnly {
		session.readOnly()
	}
	return session, nil
}

// sessionsKept bounds the sessions that wait for the next transaction.
const sessionsKept = 64

// release takes back a session without an open transaction.
func (s *Store) release(session nativeSession) {
	session.unlockAll()
	session.idle()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if len(s.free) < sessionsKept {
		s.free = append(s.free, session)
		return
	}
	session.close()
}

// forget counts one user less.
func (s *Store) forget() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
}

// use calls f with the core while the store is open.
func (s *Store) use(op string, f func(nativeStore) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return &Error{Op: op, Err: ErrClosed}
	}
	s.open++
	s.mu.Unlock()
	defer s.forget()
	return named(f(s.core), op, Path{})
}

// Sync returns when all changes that were made before are durable.
func (s *Store) Sync() error { return s.use("sync", nativeStore.sync) }

// Update runs f in a transaction and commits it, unless f returns an error: then nothing of it
// is kept, and Update returns the error. If another transaction has changed what f read, f runs
// again, with a new snapshot, until ctx ends; so it must not change anything outside the database
// that it cannot change twice. From its third run on, other transactions wait for it.
//
// When Update returns nil, the changes are durable. tx must not be used afterwards. An ErrDisk with
// a Commit says that the transaction was committed and seen by this process, but could not be
// written: the process tries again until it ends, and Wait tells how that went on. Any other error
// says that nothing of it is kept.
//
// A change by another session or an Update of the store, made inside f, is not part of the
// transaction: from the third run on it waits for the end of the transaction that it is made in, and
// fails with ErrTimeout after 10 s, or when its ctx ends. Use tx, or tx.Update.
func (s *Store) Update(ctx context.Context, f func(tx *Tx) error) error {
	if s.readOnly {
		return &Error{Op: "begin", Err: ErrReadOnly}
	}
	session, err := s.acquire()
	if err != nil {
		return named(err, "begin", Path{})
	}
	defer s.release(session)
	shared := &sharedSession{core: session}
	commit, err := update(ctx, shared, f)
	if err != nil || s.noWait {
		return err
	}
	return shared.durable(commit)
}

// Wait waits until the transaction with the number of an Error's Commit is durable. It returns nil
// if it is, ErrDisk if another attempt to write it failed, and ErrSuperseded if it is lost.
func (s *Store) Wait(commit uint64) error {
	session, err := s.acquire()
	if err != nil {
		return named(err, "wait", Path{})
	}
	defer s.release(session)
	return (&sharedSession{core: session}).durable(commit)
}

// View runs f in a transaction that reads one snapshot and changes nothing.
func (s *Store) View(ctx context.Context, f func(tx *Tx) error) error {
	session, err := s.acquire()
	if err != nil {
		return named(err, "begin", Path{})
	}
	defer s.release(session)
	return view(ctx, &sharedSession{core: session}, f)
}

// Stat describes a store.
type Stat struct {
	Nodes        uint64 `json:"nodes"`
	UsedBytes    uint64 `json:"used_bytes"`
	FreeBytes    uint64 `json:"free_bytes"` // of deleted nodes, used again
	MapBytes     uint64 `json:"map_bytes"`
	PendingBytes uint64 `json:"pending_bytes"` // of changes of this process that are not yet durable
	Commits      uint64 `json:"commits"`
	Expiring     uint64 `json:"expiring"` // nodes with a time to live
	Depth        int    `json:"depth"`    // of the tree of pages
	Readers      int    `json:"readers"`
	Locks        int    `json:"locks"`
	Processes    int    `json:"processes"`
}

// Stat returns figures about the store.
func (s *Store) Stat() (stat Stat, err error) {
	err = s.use("describe "+s.folder, func(core nativeStore) (err error) {
		stat, err = core.stat()
		return err
	})
	return stat, err
}

// Backup writes a consistent copy into a folder that does not exist or is empty, while others read
// and write. The copy is a store, and compact.
func (s *Store) Backup(folder string) error {
	return s.use("back up to "+folder, func(core nativeStore) error { return core.backup(folder) })
}

// Check reads the whole store and tells report each fault. It returns the number of faults.
func (s *Store) Check(report func(fault string)) (faults int, err error) {
	err = s.use("check "+s.folder, func(core nativeStore) (err error) {
		faults, err = core.check(report)
		return err
	})
	return faults, err
}

// Compact rewrites the store in a folder, which no process may have open, without the space of deleted
// nodes.
func Compact(folder string) error { return named(compactCore(folder), "compact "+folder, Path{}) }

// named adds the operation and its node to an error of the core.
func named(err error, op string, p Path) error {
	var failed *Error
	if errors.As(err, &failed) && failed.Op == "" {
		failed.Op, failed.Path = op, p
	}
	return err
}

// Restore writes the store in a backup into a folder that does not exist or is empty.
func Restore(backup, folder string) error {
	s, err := Open(backup, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(s.Backup(folder), s.Close())
}
