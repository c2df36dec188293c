package pool

import "sync/atomic"

// A waiter is a caller that sleeps. It gets a VM that is held for it, or nil for
// another try, once for each time that it was taken out of its queue.
type waiter struct {
	turn        chan *Member
	opens       bool // it may make a VM; written before nil is sent
	number      uint64
	queue       *queue
	before, far *waiter
}

// A queue holds callers in the order of their coming. Its group's mutex guards it.
// It has at most one caller who was woken and has not tried yet: more would run
// after the same VM.
type queue struct {
	first, last *waiter
	count       uint64 // that ever came
	length      atomic.Int32
	woken       atomic.Bool
}

// calls tells whether there is somebody to wake. It needs no mutex.
func (q *queue) calls() bool { return q.length.Load() > 0 && !q.woken.Load() }

// push appends a waiter, or puts one that has been in before back into his place.
func (q *queue) push(w *waiter, again bool) {
	var behind *waiter // w; nil at the end
	if again {
		behind = q.first
		for behind != nil && behind.number < w.number {
			behind = behind.far
		}
	} else {
		q.count++
		w.number = q.count
	}
	before := q.last
	if behind != nil {
		before, behind.before = behind.before, w
	} else {
		q.last = w
	}
	if before != nil {
		before.far = w
	} else {
		q.first = w
	}
	w.queue, w.before, w.far = q, before, behind
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
