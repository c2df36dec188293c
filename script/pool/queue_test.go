package pool

import "testing"

// TestQueue: callers are served in the order of their numbers, also those that come back. The
// queue wakes only waiting callers, and no caller while another is awake.
func TestQueue(t *testing.T) {
	q := &queue{}
	expect := func(when string, wake bool, length int32) {
		t.Helper()
		if q.needsWake() != wake || q.length.Load() != length {
			t.Fatalf("%s: %d wait, needs to wake one: %v", when, q.length.Load(), q.needsWake())
		}
	}
	expect("empty", false, 0)
	q.wakeFirst()
	expect("nobody to wake", false, 0)
	all := make([]*waiter, 4)
	for i := range all {
		all[i] = &waiter{handoff: make(chan *Member, 1)}
		q.push(all[i], false)
	}
	expect("four", true, 4)
	q.wakeFirst()
	q.wakeFirst() // the first has not tried yet
	expect("one is awake", false, 3)
	if len(all[0].handoff) != 1 || len(all[1].handoff) != 0 {
		t.Fatal("the wrong callers were woken")
	}
	q.wokenPending.Store(false)
	expect("it has tried", true, 3)
	if q.remove(all[0]) || !q.remove(all[2]) || q.remove(all[2]) {
		t.Fatal("a caller is removed once, while it waits")
	}
	q.push(all[2], true)
	q.push(all[0], true)
	late := &waiter{handoff: make(chan *Member, 1)}
	q.push(late, false)
	for i, want := range append(all, late, nil) {
		if got := q.pop(); got != want {
			t.Fatalf("caller %d is served out of turn", i)
		}
	}
	expect("all are served", false, 0)
}
