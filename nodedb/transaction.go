package nodedb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// A Tx is a transaction. It reads one snapshot and its own changes. Within it, nodes expire by the
// time at which the transaction began.
type Tx struct{ nodes }

func newTx(s *sharedSession, readOnly bool) *Tx {
	return &Tx{nodes{session: s, readOnly: readOnly, inTx: true}}
}

// Session returns the transaction's ndb_session of nodedb.h, for C code that works in the
// transaction: a Tx is the event.State of a script. It is valid until the transaction ends, and
// tx must not be used meanwhile.
func (tx *Tx) Session() unsafe.Pointer {
	tx.session.mu.Lock()
	defer tx.session.mu.Unlock()
	if tx.session.closed {
		return nil
	}
	return sessionAddress(tx.session.core)
}

// Update runs f in a nested transaction. If f returns an error, only the changes of f are undone.
func (tx *Tx) Update(ctx context.Context, f func(tx *Tx) error) error {
	if tx.readOnly && !tx.session.readOnly {
		return &Error{Op: "begin", Err: ErrReadOnly, message: "the transaction is a View"}
	}
	if err := tx.call("begin", Path{}, nativeSession.begin); err != nil {
		return err
	}
	inner := newTx(tx.session, tx.readOnly)
	committed := false
	defer func() {
		inner.end()
		if !committed { // f failed, or panicked
			_ = tx.call("roll back", Path{}, nativeSession.rollback) // the caller gets the error of f
		}
	}()
	if err := f(inner); err != nil {
		return err
	}
	err := tx.call("commit", Path{}, func(core nativeSession) error {
		_, err := core.commit()
		return err
	})
	committed = err == nil
	return err
}

// sharedSession is an open session of the core. Its mutex keeps the core's memory safe if two
// goroutines use the session.
type sharedSession struct {
	readOnly bool // the store was opened read-only

	mu     sync.Mutex // guards the fields below
	core   nativeSession
	closed bool
	cause  error // why it was closed; nil: ErrClosed
}

// durable waits until a commit is durable. Its error includes the commit's number.
func (s *sharedSession) durable(commit uint64) error {
	err := named(s.call(func(core nativeSession) error { return core.wait(commit) }), "commit", Path{})
	var failed *Error
	if errors.As(err, &failed) && failed.Err == ErrDisk {
		failed.Commit = commit
	}
	return err
}

// until interrupts waits of the session's changes and commits when ctx ends, until release is
// called.
func (s *sharedSession) until(ctx context.Context) (release func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.core.interrupt(true)
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended
		}
		s.core.interrupt(false)
	}
}

// ended adds the error of ctx to a timeout that the end of ctx caused.
func ended(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && errors.Is(err, ErrTimeout) {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// iterate opens an iterator.
func (s *sharedSession) iterate(key string, scan nativeScan) (it nativeIterator, err error) {
	err = s.call(func(core nativeSession) error {
		it, err = core.iterate(key, scan)
		return err
	})
	return it, err
}

// closeIterator closes an iterator, unless it was closed with the session.
func (s *sharedSession) closeIterator(it nativeIterator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		it.close()
	}
}

// close closes the session and, in the core, its iterators.
func (s *sharedSession) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.core.close()
}

// end closes the session, unless it is closed. Calls then fail with cause, or ErrClosed.
func (s *sharedSession) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed, s.cause = true, cause
		s.core.close()
	}
}

// finish makes the session unusable if f, which closes the core's session, succeeds.
func (s *sharedSession) finish(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &Error{Err: ErrClosed}
	}
	err := f()
	s.closed = err == nil
	return err
}

// abandon makes the session unusable; its owner closes that of the core.
func (s *sharedSession) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// call calls f with the core's session, under the mutex.
func (s *sharedSession) call(f func(nativeSession) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.cause != nil {
		return s.cause
	}
	if s.closed {
		return &Error{Err: ErrClosed}
	}
	return f(s.core)
}

// update runs f in an outermost transaction until it commits or fails.
func update(ctx context.Context, s *sharedSession, f func(tx *Tx) error) (commit uint64, err error) {
	defer s.until(ctx)()
	if err := s.call(nativeSession.begin); err != nil {
		return 0, named(err, "begin", Path{})
	}
	open := true
	defer func() {
		if open { // f failed, or panicked
			_ = s.call(nativeSession.rollback) // the caller gets the error of f
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		err := runOnce(s, f, s.readOnly)
		restart := errors.Is(err, ErrConflict)
		if err == nil {
			err = s.call(func(core nativeSession) (err error) {
				commit, err = core.commit()
				return err
			})
			if err == nil {
				open = false
				return commit, nil
			}
			restart = false
			if !errors.Is(err, ErrConflict) {
				return 0, ended(ctx, named(err, "commit", Path{}))
			}
		} else if !restart {
			return 0, err
		}
		if restart {
			if err := s.call(nativeSession.restart); err != nil {
				return 0, ended(ctx, named(err, "restart", Path{}))
			}
		}
	}
}

// view runs f in an outermost transaction and rolls it back.
func view(ctx context.Context, s *sharedSession, f func(tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.call(nativeSession.beginView); err != nil {
		return named(err, "begin", Path{})
	}
	defer func() { _ = s.call(nativeSession.rollback) }() // a view has nothing to undo
	return runOnce(s, f, true)
}

// runOnce calls f with a transaction, and makes the transaction unusable afterwards.
func runOnce(s *sharedSession, f func(tx *Tx) error, readOnly bool) error {
	tx := newTx(s, readOnly)
	defer tx.end()
	return f(tx)
}
