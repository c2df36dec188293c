//go:build cgo

package eventstore

import (
	"context"
	"fmt"
)

// A task is work for the writer: rows to append, or something else that needs a
// transaction of its own.
type task struct {
	rows  *rows
	other func(tx *conn) (after func(), err error)
	done  chan error // buffered
}

// submit hands a task to the writer and waits for it. Once the writer has taken
// it, ctx no longer matters: the writer reads memory that belongs to the
// caller, and a commit does not take long.
func (s *Store) submit(ctx context.Context, t task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.done = make(chan error, 1)
	select {
	case s.work <- t:
		return <-t.done
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return ErrClosed
	}
}

// do runs f in a transaction of the writer. What f returns is called once that
// has been committed, still by the writer.
func (s *Store) do(ctx context.Context, f func(tx *conn) (after func(), err error)) error {
	return s.submit(ctx, task{other: f})
}

// writer is the one goroutine that writes. What arrives while it commits is its
// next commit: the slower the disk, the larger the commits, without a timer.
func (s *Store) writer() {
	defer close(s.closed)
	for {
		select {
		case t := <-s.work:
			s.handle(t)
		case <-s.closing:
			return
		}
	}
}

// handle does first, together with the appends that wait beside it.
func (s *Store) handle(first task) {
	var group []task
	for next, more := first, true; more; next, more = s.waiting() {
		if next.other != nil {
			next.done <- s.transact(next.other)
		} else {
			group = append(group, next)
		}
	}
	// Only now: one of the others may have taken a partition over.
	group, commit := newCommit(group)
	if len(group) == 0 {
		return
	}
	err := s.transact(commit.run)
	for _, t := range group {
		t.done <- err
	}
}

// waiting takes a task that is ready now.
func (s *Store) waiting() (task, bool) {
	select {
	case t := <-s.work:
		return t, true
	default:
		return task{}, false
	}
}

// transact runs f in a transaction, twice when queries have taken the memory:
// writing has the first claim to it, and queries are ended for it.
func (s *Store) transact(f func(tx *conn) (func(), error)) error {
	err := s.attempt(f)
	if outOfMemory(err) && s.queries.evict() {
		err = s.attempt(f)
	}
	return err
}

func (s *Store) attempt(f func(tx *conn) (func(), error)) error {
	if err := s.write.exec("BEGIN"); err != nil {
		return fmt.Errorf("eventstore: begin: %w", err)
	}
	after, err := f(s.write)
	if err != nil {
		s.write.exec("ROLLBACK") // its error would hide the first one
		return err
	}
	if err := s.write.exec("COMMIT"); err != nil {
		s.write.exec("ROLLBACK")
		return fmt.Errorf("eventstore: commit: %w", err)
	}
	after()
	return nil
}
