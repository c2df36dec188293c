package nodedb

import "time"

// This file declares the C core's interface to Go. core_cgo.go implements it; core_absent.go
// replaces it in builds without the core. All errors are *Error values with an Err from errors.go,
// without Op and Path.

type nativeStore interface {
	close() error
	sync() error
	stat() (Stat, error)
	backup(folder string) error
	check(report func(fault string)) (faults int, err error)
	session() (nativeSession, error)
}

type nativeUnit interface {
	close() error
	sync() error
	stat() (Stat, error)
	status() (UnitStats, error) // without the figures of the disk
	// view opens a session in a read-only transaction on the committed state.
	view() (nativeSession, error)
	begin(clock uint64) (nativeDelta, error) // ms since 1970
	apply(number, mark uint64, changes []byte) error
	drop()

	chunk(from []byte, bytes int) (Chunk, error)
	loadBegin(s Snapshot) (loaded uint64, err error)
	load(chunk []byte) error
	loadEnd() error
	isLoading() (bool, error)
}

// A nativeDelta must not be used after commit succeeded, or after drop of its unit.
type nativeDelta interface {
	clock() uint64
	session() nativeSession // until freeze; its owner does not close it
	freeze() error
	discard() error
	appendTo(to []byte) ([]byte, error)
	bytes() int
	commit(number, mark uint64) error
}

// A nativeSession may be used by one goroutine at a time. Keys are encoded paths.
type nativeSession interface {
	close()
	readOnly()
	// interrupt makes changes and commits stop waiting (true), or wait again (false). Another
	// goroutine may call it.
	interrupt(on bool)
	begin() error
	beginView() error
	commit() (number uint64, err error)
	wait(commit uint64) error
	rollback() error
	restart() error

	get(key string) (Value, error)
	set(key string, v Value) error
	setNew(key string, v Value) (bool, error)
	compareAndSet(key string, expected, v Value) (bool, error)
	data(key string) (int, error)
	increment(key string, by Value) (Value, error)
	killValue(key string) error
	kill(key string) error
	expire(key string, ttl time.Duration) (bool, error)
	expireAt(key string, ms uint64) (bool, error) // ms since 1970; 0: never
	setAll(pairs []nativePair) error
	ttl(key string) (time.Duration, bool, error)
	nextSibling(key string, reverse bool) (Value, bool, error)

	iterate(key string, o nativeScan) (nativeIterator, error)
	// The following work in steps and keep their place in position. more means: call again.
	count(key string, position *position, count *uint64) (more bool, err error)
	merge(to, from string, position *position) (more bool, err error)
	killRange(key string, from, to Value, position *position) (more bool, err error)
	expireTree(key string, ms uint64, position *position) (more bool, err error)

	lock(keys []string, timeout time.Duration) error // < 0: no limit
	unlock(key string) (bool, error)
	unlockAll()

	// idle releases the snapshot that the session holds.
	idle()

	// load sets the node of a dump line. at is the offset of the invalid byte in an invalid line.
	load(line string) (at int, err error)
}

// A nativePair is a node to set.
type nativePair struct {
	key   string
	value Value
}

// A nativeScan describes the range of an iterator.
type nativeScan struct {
	descendants, self, reverse, values bool
	from, to                           Value // subscripts of siblings; of descendants whole keys, as strings
	limit                              uint64
}

type nativeIterator interface {
	// fill returns the number of items in the next batch, 0 at the end.
	fill() (int, error)
	// item returns item i of the batch: the subscript of a sibling, or the key of a
	// descendant.
	item(i int) (subscript Value, key string, value Value)
	// appendText appends the batch as lines of a dump.
	appendText(to []byte) ([]byte, error)
	close()
}

// A position is the key at which an operation in steps continues.
type position struct {
	key [PathMax]byte
	len int
}
