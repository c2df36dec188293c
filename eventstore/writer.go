//go:build cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	duck "github.com/duckdb/duckdb-go-bindings"
)

// A request is work for the writer: rows to append, or something else that needs a
// transaction of its own.
type request struct {
	rows   *pendingAppend
	change func(tx *conn) (after func(), err error)
	done   chan error // buffered
}

// submit hands a task to the writer and waits for it. Once the writer has taken
// it, ctx no longer matters: the writer reads memory that belongs to the
// caller, and a commit does not take long.
func (s *Store) submit(ctx context.Context, t request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.done = make(chan error, 1)
	select {
	case s.requests <- t:
		return <-t.done
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return ErrClosed
	}
}

// inTransaction runs f in a transaction of the writer. What f returns is called once that
// has been committed, still by the writer.
func (s *Store) inTransaction(ctx context.Context, f func(tx *conn) (after func(), err error)) error {
	return s.submit(ctx, request{change: f})
}

// writer is the one goroutine that writes. What arrives while it commits is its
// next commit: the slower the disk, the larger the commits, without a timer.
func (s *Store) writer() {
	defer close(s.closed)
	for {
		select {
		case t := <-s.requests:
			s.commitGroup(t)
		case <-s.closing:
			return
		}
	}
}

// commitGroup does first, together with the appends that wait beside it.
func (s *Store) commitGroup(first request) {
	var group []request
	for next, more := first, true; more; next, more = s.nextRequest() {
		if next.change != nil {
			next.done <- s.commitOrRecover(next.change)
		} else {
			group = append(group, next)
		}
	}
	// Only now: one of the others may have taken a partition over.
	group, commit := newCommit(group)
	if len(group) == 0 {
		return
	}
	err := s.commitOrRecover(commit.run)
	for _, t := range group {
		t.done <- err
	}
}

// nextRequest takes a task that is ready now.
func (s *Store) nextRequest() (request, bool) {
	select {
	case t := <-s.requests:
		return t, true
	default:
		return request{}, false
	}
}

// commitOrRecover runs f in a transaction. When that fails for want of memory, or
// breaks the database, the queries are ended, the writer finds out where it is,
// and f runs once more: writing has the first claim to the memory.
func (s *Store) commitOrRecover(f func(tx *conn) (func(), error)) error {
	if !s.broken {
		if err := s.tryCommit(f); !s.broken && !outOfMemory(err) {
			return err
		}
	}
	s.queries.exclusive.Lock()
	defer s.queries.exclusive.Unlock()
	ended := s.queries.cancelAll()
	if s.broken {
		if err := s.recover(ended); err != nil {
			return fmt.Errorf("eventstore: recover: %w", err)
		}
	}
	return s.tryCommit(f)
}

func (s *Store) tryCommit(f func(tx *conn) (func(), error)) (err error) {
	defer func() { s.broken = s.broken || errors.Is(err, errBroken) }()
	if err := s.write.exec("BEGIN"); err != nil {
		s.rollback()
		return fmt.Errorf("eventstore: begin: %w", err)
	}
	after, err := f(s.write)
	if err != nil {
		s.rollback()
		return err
	}
	if err := s.write.exec("COMMIT"); err != nil {
		// Out of memory, DuckDB has been seen to refuse a commit that is there
		// afterwards, and to put rows of it in the place of the next. Only what
		// it reads back from its log is to be trusted.
		s.broken = true
		return fmt.Errorf("eventstore: commit: %w", err)
	}
	if err := s.syncLog(); err != nil {
		s.broken = true // the commit is there, and may not stay
		return fmt.Errorf("eventstore: sync the log: %w", err)
	}
	after()
	return nil
}

// rollback leaves the writer's connection without a transaction. Without memory
// even a ROLLBACK fails, and then only a new connection has none.
func (s *Store) rollback() {
	if s.write.exec("ROLLBACK") == nil {
		return
	}
	if fresh, err := connect(s.db); err == nil {
		s.write.close()
		s.write = fresh
	}
}

// recover opens a broken database again and makes what the writer knows agree
// with it. That only goes when no query holds on to it: two instances on one
// file would destroy it.
func (s *Store) recover(alone bool) error {
	if !alone {
		return errBroken
	}
	s.write.close()
	duck.Close(&s.db)
	if err := s.start(); err != nil {
		return err
	}
	s.mu.Lock()
	tables := slices.Collect(maps.Values(s.tables))
	s.mu.Unlock()
	for _, t := range tables {
		if err := t.load(); err != nil {
			return err
		}
	}
	s.broken = false
	return nil
}
