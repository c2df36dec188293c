package pool

import "sync/atomic"

// A waiter is a caller that sleeps. Each time it is removed from its queue it receives
// either a VM that is held for it, or nil, which means: try again.
type waiter struct {
	handoff    chan *Member
	mayOpen    bool // it may make a VM; written before nil is sent
	number     uint64
	queue      *queue
	prev, next *waiter
}

// A queue holds callers, first come first served. Its group's mutex guards it. At most
// one of its callers is awake and has not tried yet: more would compete for the same VM.
type queue struct {
	first, last  *waiter
	pushed       uint64 // callers so far
	length       atomic.Int32
	wokenPending atomic.Bool
}

// needsWake reports whether there is a caller to wake. It needs no mutex.
func (q *queue) needsWake() bool { return q.length.Load() > 0 && !q.wokenPending.Load() }

// push appends a waiter, or puts one that was woken before back into its place.
func (q *queue) push(w *waiter, again bool) {
	var behind *waiter // the waiter after w; nil at the end
	if again {
		behind = q.first
		for behind != nil && behind.number < w.number {
			behind = behind.next
		}
	} else {
		q.pushed++
		w.number = q.pushed
	}
	before := q.last
	if behind != nil {
		before, behind.prev = behind.prev, w
	} else {
		q.last = w
	}
	if before != nil {
		before.next = w
	} else {
		q.first = w
	}
	w.queue, w.prev, w.next = q, before, behind
	q.length.Add(1)
}

// remove removes a waiter, and reports whether it was in the queue.
func (q *queue) remove(w *waiter) bool {
	if w.queue != q {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.queue, w.prev, w.next = nil, nil, nil
	q.length.Add(-1)
	return true
}

// pop removes and returns the first waiter, or nil.
func (q *queue) pop() *waiter {
	w := q.first
	if w != nil {
		q.remove(w)
	}
	return w
}

// wakeFirst lets the first waiter try again.
func (q *queue) wakeFirst() {
	if q.wokenPending.Load() {
		return
	}
	if w := q.pop(); w != nil {
		q.wokenPending.Store(true)
		w.handoff <- nil
	}
}
