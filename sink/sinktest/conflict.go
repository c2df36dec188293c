package sinktest

import (
	"errors"

	"github.com/perigeedb/perigee/sink"
)

// conflictIsRetried lets a write lose against another transaction. It must return
// sink.ErrConflict, leave nothing behind and succeed when it is retried.
func conflictIsRetried(t *testEnv) {
	if t.place.Deadlock == nil {
		t.Skip("no other transactions write to this place")
	}
	w := t.openWriter("p", "a")
	collide, end := t.place.Deadlock(t.T, []int64{1, 2})
	out := w.makeEvents(0, 5)
	result := make(chan error, 1)
	go func() { result <- w.Write(t.ctx, out) }()
	collide()
	if err := <-result; !errors.Is(err, sink.ErrConflict) {
		t.Errorf("the write that was chosen as the victim of a deadlock returned %v, want ErrConflict", err)
	}
	end()
	if err := w.Write(t.ctx, out); err != nil {
		t.Fatalf("retrying after a conflict: %v", err)
	}
	t.expectRows(rangesOf(rangeAt(0, 5)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 5)))
}
