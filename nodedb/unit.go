package nodedb

import (
	"context"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// UnitOptions are the settings of a unit. Zero fields select the defaults.
type UnitOptions struct {
	// FlushAge is the age at which committed deltas are written to disk, in slices of bounded size;
	// default 30 s. The youngest of them are then as old, but at most 5 s, unless Sync or Close wait for
	// the write, or memory is short.
	FlushAge time.Duration
	// PendingBytes limits the memory of committed deltas that wait for the disk; default 256 MiB.
	// Five eighths of it start a write. At the limit Commit and Apply wait.
	PendingBytes int64
	// NeverWait makes Commit and Apply continue beyond PendingBytes. The owner must check Memory
	// and wait before it begins a delta, where it can be told to stop.
	NeverWait bool
	// DeltaBytes limits the memory of one delta; default 256 MiB. A change that exceeds it fails
	// with ErrTransactionTooLarge.
	DeltaBytes int64
	// Verify checks each value read from the file against its checksum.
	Verify bool
	// NoSync leaves it to the operating system when to write to the disk. A machine crash can
	// destroy the folder.
	NoSync bool
}

// A Unit is the state of a pipeline, or of a part of it: nodes in a folder, which numbered deltas
// change. It is safe for concurrent use.
//
// A delta begins over the committed state and over the frozen deltas before it, so the next delivery
// can run while earlier ones are being committed elsewhere. Commit makes the oldest one part of the
// committed state, in memory at once and on disk later. After a crash the file has all deltas up to
// a number that Positions returns; the owner has the later ones in a place of its own, encoded by
// Delta.AppendTo, and passes them to Apply.
//
// Within deltas and views, time is the clock of deltas, not that of the machine.
type Unit struct {
	folder string
	core   nativeUnit

	commits sync.Mutex // held by Commit, Apply, Drop and Close, before mu

	mu     sync.Mutex // guards the fields below
	closed bool
	users  int        // running calls
	idle   *sync.Cond // users is 0
	deltas []*Delta   // in flight, the oldest first
}

// viewTimeout is the longest time that a View may run. Its snapshot keeps the space of deleted nodes
// from being reused.
const viewTimeout = 10 * time.Second

// OpenUnit opens the unit in a folder, which it creates if necessary. One process at a time can have
// it open, once; another open fails with ErrInUse. [Open] with ReadOnly reads the folder meanwhile.
func OpenUnit(folder string, o UnitOptions) (*Unit, error) { return openUnit(folder, o, 1<<16) }

// openUnit opens a unit that writes sliceNodes changes in one transaction of LMDB.
func openUnit(folder string, o UnitOptions, sliceNodes int) (*Unit, error) {
	core, err := openUnitCore(folder, o, sliceNodes)
	if err != nil {
		return nil, named(err, "open "+folder, Path{})
	}
	u := &Unit{folder: folder, core: core}
	u.idle = sync.NewCond(&u.mu)
	return u, nil
}

// Folder returns the folder that was passed to OpenUnit.
func (u *Unit) Folder() string { return u.folder }

// use calls f with the core while the unit is open.
func (u *Unit) use(op string, f func(nativeUnit) error) error {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return &Error{Op: op, Err: ErrClosed}
	}
	u.users++
	u.mu.Unlock()
	defer u.leave()
	return named(f(u.core), op, Path{})
}

func (u *Unit) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users--; u.users == 0 {
		u.idle.Broadcast()
	}
}

// Positions returns the number up to which all deltas are on disk, and the highest number of a delta
// that may be there in part. After OpenUnit, Begin and View fail with ErrIncomplete until all deltas
// up to begun have been applied again. mark is what the delta with the number applied was committed
// with.
func (u *Unit) Positions() (applied, begun, mark uint64) {
	s, _ := u.status() // the positions are set also if the last write failed
	return s.Applied, s.Begun, s.Mark
}

// Last returns the number of the last committed delta; it is applied of Positions after OpenUnit.
func (u *Unit) Last() uint64 {
	s, _ := u.status()
	return s.Last
}

// Durable returns the number of the delta up to which all are on disk and synced. It also returns
// the error of the last attempt to write, which is repeated.
func (u *Unit) Durable() (uint64, error) {
	s, err := u.status()
	return s.Applied, err
}

// status returns the statistics that do not need the disk.
func (u *Unit) status() (stats UnitStats, err error) {
	err = u.use("describe", func(core nativeUnit) (err error) {
		stats, err = core.status()
		return err
	})
	return stats, err
}

// Memory returns the bytes of frozen deltas and of committed ones that wait for the disk, with the
// error of the last attempt to write, which is repeated.
func (u *Unit) Memory() (int64, error) {
	s, err := u.status()
	return int64(s.WaitingBytes + s.InFlightBytes), err
}

// Sync waits until all committed deltas are on disk, or ctx ends. It fails with ErrDisk if an
// attempt to write fails; the unit continues to retry.
func (u *Unit) Sync(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- u.use("sync", nativeUnit.sync) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begin begins a delta over the committed state and over the frozen deltas in flight. The delta
// before it must be frozen, and at most 16 may be in flight. In the delta, nodes expire by clock, or
// by the clock of an earlier delta if that is later: see Delta.Clock.
func (u *Unit) Begin(clock time.Time) (*Delta, error) {
	var d *Delta
	err := u.use("begin", func(core nativeUnit) error {
		u.mu.Lock()
		defer u.mu.Unlock()
		native, err := core.begin(uint64(max(clock.UnixMilli(), 0)))
		if err != nil {
			return err
		}
		d = &Delta{unit: u, core: native, clock: time.UnixMilli(int64(native.clock()))}
		d.session = &sharedSession{core: native.session()}
		d.tx = newTx(d.session, false)
		u.deltas = append(u.deltas, d)
		return nil
	})
	return d, err
}

// Commit makes the oldest delta in flight, which must be frozen, part of the committed state. number
// is one above that of the last committed delta. mark is kept with it: it tells the owner
// whether the delta is of the same history. After an error the delta is still in flight.
func (u *Unit) Commit(d *Delta, number, mark uint64) error {
	u.commits.Lock()
	defer u.commits.Unlock()
	return u.use("commit", func(nativeUnit) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.unit != u {
			return &Error{Err: ErrArgument, message: "the delta belongs to another unit"}
		}
		if d.core == nil {
			return d.over()
		}
		if err := d.core.commit(number, mark); err != nil {
			return err
		}
		d.core = nil
		u.mu.Lock()
		u.deltas = slices.Delete(u.deltas, 0, 1)
		u.mu.Unlock()
		return nil
	})
}

// Apply commits a delta that Delta.AppendTo encoded, while none is in flight. number is one above
// that of the last committed delta. If the bytes are damaged, it fails with ErrCorrupt and changes
// nothing.
func (u *Unit) Apply(number, mark uint64, changes []byte) error {
	u.commits.Lock()
	defer u.commits.Unlock()
	return u.use("apply", func(core nativeUnit) error { return core.apply(number, mark, changes) })
}

// Drop drops all deltas that are not committed. No goroutine may be using one.
func (u *Unit) Drop() {
	u.commits.Lock()
	defer u.commits.Unlock()
	_ = u.use("drop", func(core nativeUnit) error { // a closed unit has no deltas
		u.drop()
		return nil
	})
}

// drop ends all deltas in flight. u.commits must be held.
func (u *Unit) drop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, d := range u.deltas {
		d.mu.Lock()
		d.tx.end()
		d.session.abandon()
		d.core = nil
		d.mu.Unlock()
	}
	u.deltas = nil
	u.core.drop()
}

// View runs f in a read-only transaction on the committed state. After 10 s the transaction ends,
// and View fails with ErrTimeout.
func (u *Unit) View(ctx context.Context, f func(tx *Tx) error) error {
	return u.use("read", func(core nativeUnit) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		native, err := core.view()
		if err != nil {
			return err
		}
		session := &sharedSession{core: native}
		late := &Error{Op: "read", Err: ErrTimeout, message: "the view has run for " + viewTimeout.String() + ", the longest time"}
		timer := time.AfterFunc(viewTimeout, func() { session.end(late) })
		defer session.end(nil)
		defer timer.Stop()
		if err := runOnce(session, f, true); err != nil {
			return err
		}
		if !timer.Stop() {
			return late
		}
		return nil
	})
}

// OpenReader opens a reader of the committed state as it is now. It delays Close of the unit until
// it is closed.
func (u *Unit) OpenReader() (*Reader, error) {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return nil, &Error{Op: "read", Err: ErrClosed}
	}
	u.users++
	u.mu.Unlock()
	core, err := u.core.view()
	if err != nil {
		u.leave()
		return nil, named(err, "read", Path{})
	}
	return &Reader{unit: u, core: core}, nil
}

// A Reader reads a snapshot of the committed state of a unit from C code. It is used by one goroutine
// at a time. Unlike a View it does not end by itself: an owner that keeps one for long renews its
// snapshot.
type Reader struct {
	unit *Unit
	core nativeSession // nil: closed
}

// Session returns the reader's ndb_session of nodedb.h, for C code that calls the functions in
// Functions; nil after Close. It is in a read-only transaction at level 1: ndb_rollback and
// ndb_begin_committed renew it.
func (r *Reader) Session() unsafe.Pointer {
	if r.core == nil {
		return nil
	}
	return sessionAddress(r.core)
}

// Close releases the snapshot.
func (r *Reader) Close() {
	if r.core != nil {
		r.core.close()
		r.core = nil
		r.unit.leave()
	}
}

// UnitStats describes a unit.
type UnitStats struct {
	Nodes         uint64    `json:"nodes"`           // on disk
	UsedBytes     uint64    `json:"used_bytes"`      // on disk
	FreeBytes     uint64    `json:"free_bytes"`      // on disk, freed by deletes, to be reused
	WaitingNodes  uint64    `json:"waiting_nodes"`   // committed changes that wait for the disk
	WaitingBytes  uint64    `json:"waiting_bytes"`   // their memory
	InFlight      int       `json:"in_flight"`       // deltas that are not committed
	InFlightBytes uint64    `json:"in_flight_bytes"` // the memory of the frozen ones
	Last          uint64    `json:"last"`            // number of the last committed delta
	Applied       uint64    `json:"applied"`         // see Positions
	Begun         uint64    `json:"begun"`
	Mark          uint64    `json:"mark"`  // of the delta Applied
	Clock         time.Time `json:"clock"` // of the last committed delta
}

// Stats returns statistics of the unit. If the last attempt to write has failed, it returns them
// with that error.
func (u *Unit) Stats() (stats UnitStats, err error) {
	err = u.use("describe", func(core nativeUnit) error {
		disk, err := core.stat()
		if err != nil {
			return err
		}
		stats, err = core.status()
		stats.Nodes, stats.UsedBytes, stats.FreeBytes = disk.Nodes, disk.UsedBytes, disk.FreeBytes
		return err
	})
	return stats, err
}

// Close drops the deltas that are not committed, writes what is committed, and closes the unit. It
// waits for running calls. If the write fails, the unit stays open.
func (u *Unit) Close() error {
	u.commits.Lock()
	defer u.commits.Unlock()
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return &Error{Op: "close " + u.folder, Err: ErrClosed}
	}
	u.closed = true
	for u.users > 0 {
		u.idle.Wait()
	}
	u.mu.Unlock()
	u.drop()
	if err := u.core.close(); err != nil {
		u.mu.Lock()
		u.closed = false
		u.mu.Unlock()
		return named(err, "close "+u.folder, Path{})
	}
	return nil
}

// A Delta is what one delivery changes in a unit: a layer of its own over the state before it. One
// goroutine at a time may use it until Freeze; then its methods are safe for concurrent use.
type Delta struct {
	unit    *Unit
	clock   time.Time
	session *sharedSession
	tx      *Tx

	mu   sync.Mutex  // guards core; taken before the session's
	core nativeDelta // nil: committed or dropped

	frozen bool // guarded by mu
}

// over returns the error of a call on a delta that was committed or dropped.
func (d *Delta) over() error {
	return &Error{Err: ErrClosed, message: "the delta was committed or dropped"}
}

// Clock returns the time by which nodes expire in the delta.
func (d *Delta) Clock() time.Time { return d.clock }

// Session returns the delta's ndb_session of nodedb.h, for C code that calls the functions in
// Functions. It is in a transaction at level 1, which it cannot end. It is valid until Freeze, Drop
// or Close, after which Session returns nil. Its reads are not recorded, and it has no conflicts.
func (d *Delta) Session() unsafe.Pointer { return d.tx.Session() }

// Tx returns the delta for Go code. It can be used until Freeze.
func (d *Delta) Tx() *Tx { return d.tx }

// Discard drops the delta, which must be the latest, as if it had not begun. It may be frozen.
func (d *Delta) Discard() error {
	d.unit.mu.Lock()
	defer d.unit.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.core == nil {
		return named(d.over(), "discard", Path{})
	}
	discard := d.core.discard
	if !d.frozen {
		discard = func() error { return d.session.finish(d.core.discard) }
	}
	if err := named(discard(), "discard", Path{}); err != nil {
		return err
	}
	d.tx.end()
	d.core = nil
	d.unit.deltas = slices.DeleteFunc(d.unit.deltas, func(other *Delta) bool { return other == d })
	return nil
}

// Freeze ends the changes. Later deltas read over this one.
func (d *Delta) Freeze() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.core == nil {
		return named(d.over(), "freeze", Path{})
	}
	if err := named(d.session.finish(d.core.freeze), "freeze", Path{}); err != nil {
		return err
	}
	d.frozen = true
	d.tx.end()
	return nil
}

// AppendTo appends the encoded changes of a frozen delta: all nodes that it changed, as they are
// after it. They are not compressed.
func (d *Delta) AppendTo(to []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.core == nil {
		return to, named(d.over(), "encode", Path{})
	}
	encoded, err := d.core.appendTo(to)
	return encoded, named(err, "encode", Path{})
}

// Bytes returns the memory of the delta; 0 once it is committed or dropped.
func (d *Delta) Bytes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.core == nil {
		return 0
	}
	return d.core.bytes()
}
