package nodedb_test

import (
	"context"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

func TestBegin(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true})
	p := nodedb.Name("^t")
	tx := must(store.Begin(ctx))
	check(t, tx.Set(p, 1))
	want(t, tx, p, 1)
	check(t, tx.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(p.At(1), 2) }))
	want(t, session(t, store), p, nil)
	check(t, tx.Commit())
	want(t, session(t, store), p, 1)
	want(t, session(t, store), p.At(1), 2)
	wantError(t, tx.Commit(), nodedb.ErrClosed)
	wantError(t, tx.Set(p, 3), nodedb.ErrClosed)
	check(t, tx.Rollback()) // as a deferred call would

	tx = must(store.Begin(ctx))
	check(t, tx.Set(p, 4))
	if err := store.Close(); err == nil {
		t.Error("the store was closed with an open transaction")
	}
	check(t, tx.Rollback())
	want(t, session(t, store), p, 1)
	wantError(t, tx.Commit(), nodedb.ErrClosed)

	tx = must(store.BeginView(ctx))
	check(t, session(t, store).Set(p, 5))
	want(t, tx, p, 1)
	wantError(t, tx.Set(p, 6), nodedb.ErrReadOnly)
	wantError(t, tx.Merge(ctx, p, p.At(1)), nodedb.ErrReadOnly)
	check(t, tx.Commit())
	want(t, session(t, store), p, 5)
}

// TestBeginMeetsConflict changes a node that a transaction has read: its commit fails and ends it.
func TestBeginMeetsConflict(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true})
	p := nodedb.Name("^t")
	tx := must(store.Begin(ctx))
	want(t, tx, p, nil)
	check(t, session(t, store).Set(p, 1))
	check(t, tx.Set(p, 2))
	wantError(t, tx.Commit(), nodedb.ErrConflict)
	wantError(t, tx.Set(p, 2), nodedb.ErrClosed)
	want(t, session(t, store), p, 1)
}

// TestBeginEndsInIteration commits inside an iteration of the transaction.
func TestBeginEndsInIteration(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true})
	p := nodedb.Name("^t")
	tx := must(store.Begin(ctx))
	for i := range 1000 {
		check(t, tx.Set(p.At(i), i))
	}
	var last error
	for _, err := range tx.Children(ctx, p, nodedb.Range{}) {
		if last = err; err != nil {
			break
		}
		if err := tx.Commit(); err != nil {
			wantError(t, err, nodedb.ErrClosed)
		}
	}
	wantError(t, last, nodedb.ErrClosed)
	want(t, session(t, store), p.At(999), 999)
}

// TestCloseEndsIteration closes a session within its own iterations. They end with an error, and
// read nothing more: the session owned their items.
func TestCloseEndsIteration(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true})
	p := nodedb.Name("^t")
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		for i := range 1000 {
			if err := tx.Set(p.At(i), i); err != nil {
				return err
			}
		}
		return nil
	}))
	for name, each := range map[string]func(s *nodedb.Session, use func(error)){
		"Children": func(s *nodedb.Session, use func(error)) {
			for _, err := range s.Children(ctx, p, nodedb.Range{}) {
				use(err)
			}
		},
		"Walk": func(s *nodedb.Session, use func(error)) {
			for _, err := range s.Walk(ctx, p, nodedb.Range{}) {
				use(err)
			}
		},
	} {
		s, items := must(store.Session()), 0
		var last error
		each(s, func(err error) {
			if last = err; err == nil {
				items++
			}
			s.Close()
		})
		if items != 1 {
			t.Errorf("%s: got %d items, want 1", name, items)
		}
		wantError(t, last, nodedb.ErrClosed)
	}
}

func TestBeginWithContext(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true})
	ended, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	tx := must(store.Begin(ended))
	<-ended.Done()
	check(t, tx.Set(nodedb.Name("^t"), 1))
	wantError(t, tx.Commit(), context.DeadlineExceeded)
	want(t, session(t, store), nodedb.Name("^t"), nil)
	_, err := store.Begin(ended)
	wantError(t, err, context.DeadlineExceeded)
}
