package nodedb

import (
	"context"
	"errors"
)

// A Transaction is a Tx that its caller ends, by Commit or Rollback. Until then it holds a snapshot,
// so the space of nodes deleted meanwhile is not reused, and Store.Close fails.
type Transaction struct {
	Tx
	store   *Store
	ctx     context.Context
	release func()
}

// Begin begins a transaction. Prefer Update, which runs its function again after a conflict.
//
//	tx, err := store.Begin(ctx)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	…
//	return tx.Commit()
//
// When ctx ends, changes stop waiting and Commit fails. The transaction stays open: call Rollback.
func (s *Store) Begin(ctx context.Context) (*Transaction, error) {
	if s.readOnly {
		return nil, &Error{Op: "begin", Err: ErrReadOnly}
	}
	return s.beginTransaction(ctx, nativeSession.begin, false)
}

// BeginView begins a read-only transaction on one snapshot.
func (s *Store) BeginView(ctx context.Context) (*Transaction, error) {
	return s.beginTransaction(ctx, nativeSession.beginView, true)
}

func (s *Store) beginTransaction(ctx context.Context, begin func(nativeSession) error, readOnly bool) (*Transaction, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	core, err := s.acquire()
	if err != nil {
		return nil, named(err, "begin", Path{})
	}
	if err := begin(core); err != nil {
		s.release(core)
		return nil, named(err, "begin", Path{})
	}
	shared := &sharedSession{core: core}
	t := &Transaction{Tx: Tx{nodes{session: shared, readOnly: readOnly, inTx: true}}, store: s, ctx: ctx}
	t.release = shared.until(ctx)
	return t, nil
}

// Commit commits the transaction and waits until its changes are durable, or, with Options.NoWait,
// visible. It always ends the transaction, also when it fails: after ErrConflict, begin a new one.
// The errors are those of Update.
func (t *Transaction) Commit() error {
	return t.finish("commit", func(core nativeSession) error {
		if err := t.ctx.Err(); err != nil {
			return errors.Join(err, core.rollback())
		}
		commit, err := core.commit()
		if err != nil {
			return ended(t.ctx, named(err, "commit", Path{}))
		}
		if t.store.noWait || t.readOnly {
			return nil
		}
		return (&sharedSession{core: core}).durable(commit)
	})
}

// Rollback ends the transaction without its changes. It does nothing if the transaction has ended.
func (t *Transaction) Rollback() error {
	err := t.finish("roll back", nativeSession.rollback)
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// finish ends the transaction with a call of end. It closes the session rather than reusing it,
// since an iteration may still be open in it.
func (t *Transaction) finish(op string, end func(nativeSession) error) error {
	s := t.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &Error{Op: op, Err: ErrClosed, message: "the transaction has ended"}
	}
	t.end()
	err := named(end(s.core), op, Path{})
	t.release()
	s.closed = true
	s.core.close()
	t.store.forget()
	return err
}
