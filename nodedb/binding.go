package nodedb

import "time"

// The C core, as the Go code uses it. core_cgo.go implements it, and core_absent.go is what a
// build without it has. All errors are from errors.go, as *Error without Op and Path.

type nativeStore interface {
	close() error
	sync() error
	stat() (Stat, error)
	backup(folder string) error
	check(report func(fault string)) (faults int, err error)
	session() (nativeSession, error)
}

// A nativeSession is used by one goroutine at a time. Keys are encoded paths.
type nativeSession interface {
	close()
	readOnly()
	// interrupt ends the waits of changes and commits, or lets them wait again. It may be called
	// by another goroutine.
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
	expireAt(key string, ms uint64) (bool, error) // since 1970; 0: never
	setAll(pairs []nativePair) error
	ttl(key string) (time.Duration, bool, error)
	nextSibling(key string, reverse bool) (Value, bool, error)

	iterate(key string, o nativeScan) (nativeIterator, error)
	// These do some steps at a time, from position on. more says that there are more of them.
	count(key string, position *position, count *uint64) (more bool, err error)
	merge(to, from string, position *position) (more bool, err error)
	killRange(key string, from, to Value, position *position) (more bool, err error)
	expireTree(key string, ms uint64, position *position) (more bool, err error)

	lock(keys []string, timeout time.Duration) error // < 0: without end
	unlock(key string) (bool, error)
	unlockAll()

	// idle lets go of the state of the store that was read last.
	idle()

	// load sets the node of a line of a dump. at is the offending byte of an invalid line.
	load(line string) (at int, err error)
}

// A nativePair is a node to set.
type nativePair struct {
	key   string
	value Value
}

// A nativeScan is what an iterator goes over.
type nativeScan struct {
	descendants, self, reverse, values bool
	from, to                           Value // of siblings; of descendants whole keys, as strings
	limit                              uint64
}

type nativeIterator interface {
	// fill returns the number of items in the next batch, 0 at the end.
	fill() (int, error)
	// item returns item i of the batch: the subscript of a sibling, or the key of a
	// descendant.
	item(i int) (subscript Value, key string, value Value)
	// appendText appends the lines of a dump of the batch.
	appendText(to []byte) ([]byte, error)
	close()
}

// A position is where a call of many steps stands, as a key.
type position struct {
	key [PathMax]byte
	len int
}
