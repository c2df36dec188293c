package pool

import (
	"sync"
	"sync/atomic"
)

// A waiter is a caller that sleeps. It gets a VM that is held for it, or nil for
// another try, once for each time that it was taken out of its queue.
type waiter struct {
	turn        chan *Member
	opens       bool // it may make a VM; written before nil is sent
	queue       *queue
	before, far *waiter
}

var waiters = sync.Pool{New: func() any { return &waiter{turn: make(chan *Member, 1)} }}

// A queue holds callers in the order of their coming. Its group's mutex guards it.
// It has at most one caller who was woken and has not tried yet: more would run
// after the same VM.
type queue struct {
	first, last *waiter
	length      atomic.Int32
	woken       atomic.Bool
}

// calls tells whether there is somebody to wake. It needs no mutex.
func (q *queue) calls() bool { return q.length.Load() > 0 && !q.woken.Load() }

// push appends a waiter, or puts one that has been first before there again.
func (q *queue) push(w *waiter, again bool) {
	w.queue, w.before, w.far = q, nil, nil
	switch {
	case q.first == nil:
		q.first, q.last = w, w
	case again:
		w.far, q.first.before = q.first, w
		q.first = w
	default:
		w.before, q.last.far = q.last, w
		q.last = w
	}
	q.length.Add(1)
}

// remove takes a waiter out, and tells whether it was still in.
func (q *queue) remove(w *waiter) bool {
	if w.queue != q {
		return false
	}
	if w.before != nil {
		w.before.far = w.far
	} else {
		q.first = w.far
	}
	if w.far != nil {
		w.far.before = w.before
	} else {
		q.last = w.before
	}
	w.queue, w.before, w.far = nil, nil, nil
	q.length.Add(-1)
	return true
}

// pop takes the first waiter out.
func (q *queue) pop() *waiter {
	w := q.first
	if w != nil {
		q.remove(w)
	}
	return w
}

// wake lets the first waiter try again.
func (q *queue) wake() {
	if q.woken.Load() {
		return
	}
	if w := q.pop(); w != nil {
		q.woken.Store(true)
		w.turn <- nil
	}
}
