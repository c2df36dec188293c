package nodedb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"
)

// Options are the settings of a store. Zero fields select the defaults.
type Options struct {
	ReadOnly bool
	// FlushInterval is the longest time until a change made outside a transaction becomes durable;
	// default 10 ms.
	FlushInterval time.Duration
	// TransactionBytes limits the memory of the changes of one transaction; default 256 MiB.
	TransactionBytes int64
	// PendingBytes limits the memory of changes that are not yet durable; default 256 MiB.
	// Writers wait at the limit.
	PendingBytes int64
	// NoWait lets Update return before the changes are durable. They become durable within
	// FlushInterval, or when Sync returns.
	NoWait bool
	// Verify checks each value read from the file against its checksum. Stores created by a version
	// without checksums have none.
	Verify bool
	// NoSync leaves it to the operating system when to write to the disk. A machine crash can
	// destroy the store.
	NoSync bool
}

// A Store is an open folder. It is safe for concurrent use.
type Store struct {
	folder   string
	core     nativeStore
	readOnly bool
	noWait   bool

	mu     sync.Mutex // guards the fields below
	closed bool
	open   int             // sessions in use, and other users of the core
	free   []nativeSession // idle sessions, for Update and View
}

// Open opens the store in a folder. It creates the store unless the options say read-only. Several
// processes may have a store open.
func Open(folder string, o Options) (*Store, error) {
	core, err := openCore(folder, o)
	if err != nil {
		return nil, named(err, "open "+folder, Path{})
	}
	return &Store{folder: folder, core: core, readOnly: o.ReadOnly, noWait: o.NoWait}, nil
}

// Close makes all changes durable and closes the store. It fails, and leaves the store open, while
// sessions or transactions are open.
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

// Folder returns the folder that was passed to Open.
func (s *Store) Folder() string { return s.folder }

// Native returns the store's ndb_store of nodedb.h, for C code that calls the functions in
// Functions. It is valid until release is called; until then, Close fails.
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

// sessionsKept is the most idle sessions that a store keeps.
const sessionsKept = 64

// release takes back a session that has no open transaction.
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

// forget removes one user.
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

// Sync waits until all changes made before the call are durable.
func (s *Store) Sync() error { return s.use("sync", nativeStore.sync) }

// Update runs f in a transaction and commits it. If f returns an error, Update discards the changes
// and returns the error. If another transaction has changed nodes that f read, Update runs f again
// with a new snapshot, until ctx ends; so f must not have side effects outside the database that
// must happen only once. From the third run on, other transactions wait for this one.
//
// When Update returns nil, the changes are durable. tx must not be used afterwards. An Error with
// ErrDisk and a Commit means that the transaction is committed and visible to this process, but was
// not written. The process retries the write until it ends; Wait reports the outcome. After any
// other error, none of the changes are kept.
//
// A change that f makes through another session or another Update of the store is not part of the
// transaction. From the third run on, such a change waits for the end of the enclosing transaction,
// and so fails with ErrTimeout after 10 s, or when its ctx ends. Use tx, or tx.Update.
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

// Wait waits until a transaction is durable, given the number in an Error's Commit. It returns nil
// once the transaction is durable, ErrDisk if another attempt to write it failed, and ErrSuperseded
// if it is lost.
func (s *Store) Wait(commit uint64) error {
	session, err := s.acquire()
	if err != nil {
		return named(err, "wait", Path{})
	}
	defer s.release(session)
	return (&sharedSession{core: session}).durable(commit)
}

// View runs f in a read-only transaction on one snapshot.
func (s *Store) View(ctx context.Context, f func(tx *Tx) error) error {
	session, err := s.acquire()
	if err != nil {
		return named(err, "begin", Path{})
	}
	defer s.release(session)
	return view(ctx, &sharedSession{core: session}, f)
}

// Stat holds statistics of a store.
type Stat struct {
	Nodes        uint64 `json:"nodes"`
	UsedBytes    uint64 `json:"used_bytes"`
	FreeBytes    uint64 `json:"free_bytes"` // freed by deletes, to be reused
	MapBytes     uint64 `json:"map_bytes"`
	PendingBytes uint64 `json:"pending_bytes"` // changes of this process that are not yet durable
	Commits      uint64 `json:"commits"`
	Expiring     uint64 `json:"expiring"` // nodes that will expire
	Depth        int    `json:"depth"`    // of the B+tree
	Readers      int    `json:"readers"`
	Locks        int    `json:"locks"`
	Processes    int    `json:"processes"`
}

// Stat returns statistics of the store.
func (s *Store) Stat() (stat Stat, err error) {
	err = s.use("describe "+s.folder, func(core nativeStore) (err error) {
		stat, err = core.stat()
		return err
	})
	return stat, err
}

// Backup writes a consistent, compact copy of the store into a folder, which must be empty or must
// not exist. Other sessions may read and write meanwhile. Open opens the copy.
func (s *Store) Backup(folder string) error {
	return s.use("back up to "+folder, func(core nativeStore) error { return core.backup(folder) })
}

// Check reads the whole store and calls report with each fault. It returns the number of faults.
func (s *Store) Check(report func(fault string)) (faults int, err error) {
	err = s.use("check "+s.folder, func(core nativeStore) (err error) {
		faults, err = core.check(report)
		return err
	})
	return faults, err
}

// Compact rewrites the store in a folder to reclaim the space of deleted nodes. No process may have
// the folder open.
func Compact(folder string) error { return named(compactCore(folder), "compact "+folder, Path{}) }

// named adds the operation and its node to an error from the core.
func named(err error, op string, p Path) error {
	var failed *Error
	if errors.As(err, &failed) && failed.Op == "" {
		failed.Op, failed.Path = op, p
	}
	return err
}

// Restore copies the store in a backup into a folder, which must be empty or must not exist.
func Restore(backup, folder string) error {
	s, err := Open(backup, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(s.Backup(folder), s.Close())
}
