package durable

import (
	"context"
	"errors"
	"sync"
)

// A GroupCommit lets writers share commits: changes that arrive while one commit
// is on its way to the disk are the next one. The slower the disk, the larger the
// commits; there is no timer, and a writer that is alone does not wait.
//
// It has no goroutine of its own: one of the writers that wait commits for all.
type GroupCommit[C any] struct {
	commit func(changes []C) error
	turn   chan struct{} // holds a value while somebody commits

	mu    sync.Mutex
	queue []*request[C] // for the next commit
}

type request[C any] struct {
	change   C
	deferred bool // nobody waits for it
	done     chan struct{}
	err      error // once done is closed
}

var errPanicked = errors.New("the commit panicked")

// NewGroupCommit returns a GroupCommit that calls commit, never twice at a time,
// with the changes that wait, in the order of their arrival. commit makes all of
// them durable or none.
func NewGroupCommit[C any](commit func(changes []C) error) *GroupCommit[C] {
	return &GroupCommit[C]{commit: commit, turn: make(chan struct{}, 1)}
}

// Commit returns when change is durable, or with the error of the commit that it
// was part of. When ctx ends before a commit has taken the change, the change is
// withdrawn and Commit returns the context's error; after that it waits, so that
// what the change refers to belongs to the caller again in any case.
func (g *GroupCommit[C]) Commit(ctx context.Context, change C) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request[C]{change: change, done: make(chan struct{})}
	g.add(r)
	select {
	case <-r.done:
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
		select {
		case <-r.done: // by the writer that had the turn before
		default:
			_ = g.commitQueue()
		}
	case <-ctx.Done():
		if g.withdraw(r) {
			return ctx.Err()
		}
		<-r.done
	}
	return r.err
}

// Defer adds a change to the next commit without waiting for it. When that commit
// fails, the change stays for the one after.
func (g *GroupCommit[C]) Defer(change C) {
	g.add(&request[C]{change: change, deferred: true, done: make(chan struct{})})
}

// Flush commits everything that waits, after the commit that is under way has
// ended.
func (g *GroupCommit[C]) Flush() error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	return g.commitQueue()
}

func (g *GroupCommit[C]) add(r *request[C]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = append(g.queue, r)
}

// withdraw removes r from the queue, unless a commit has taken it.
func (g *GroupCommit[C]) withdraw(r *request[C]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.queue {
		if g.queue[i] == r {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			return true
		}
	}
	return false
}

// commitQueue commits the queued changes. The caller has the turn.
func (g *GroupCommit[C]) commitQueue() (err error) {
	g.mu.Lock()
	group := g.queue
	g.queue = nil
	g.mu.Unlock()
	if len(group) == 0 {
		return nil
	}
	changes := make([]C, len(group))
	for i, r := range group {
		changes[i] = r.change
	}
	err = errPanicked
	defer func() { g.answer(group, err) }()
	err = g.commit(changes)
	return err
}

func (g *GroupCommit[C]) answer(group []*request[C], err error) {
	var again []*request[C]
	for _, r := range group {
		if r.deferred && err != nil {
			again = append(again, r)
			continue
		}
		r.err = err
		close(r.done)
	}
	if again != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.queue = append(again, g.queue...)
	}
}
