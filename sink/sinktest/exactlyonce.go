package sinktest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
)

func rangesComeBack(t *testEnv) {
	w := t.openWriter("p", "a")
	for _, r := range []event.Range{rangeAt(10, 5), rangeAt(100, 50), rangeAt(15, 5), rangeAt(0, 3)} {
		w.write(r.First, r.Count)
	}
	t.expectCommitted("a", rangesOf(rangeAt(0, 3), rangeAt(10, 10), rangeAt(100, 50)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 3), rangeAt(10, 10), rangeAt(100, 50)))
}

// makeFingerprints are what the suite takes for the fingerprints of its events.
func makeFingerprints(first, count uint64) []uint32 {
	all := make([]uint32, count)
	for i := range all {
		all[i] = uint32((first + uint64(i)) * 2654435761)
	}
	return all
}

// expectFingerprints fails the test unless done has want with its own fingerprints.
func expectFingerprints(t *testEnv, done event.Ranges, want event.Range) {
	t.Helper()
	seen := uint64(0)
	for _, r := range done.Intersect(rangesOf(want)) {
		expect := makeFingerprints(r.First, r.Count)
		if len(r.Fingerprints) != len(expect) {
			t.Fatalf("%v came back with %d fingerprints", r, len(r.Fingerprints))
		}
		for i, fingerprint := range r.Fingerprints {
			if fingerprint != expect[i] {
				t.Fatalf("position %d came back with fingerprint %#x, want %#x", r.First+uint64(i), fingerprint, expect[i])
			}
		}
		seen += r.Count
	}
	if seen != want.Count {
		t.Errorf("%d of the %d positions of %v came back: %v", seen, want.Count, want, done)
	}
}

func fingerprintsComeBack(t *testEnv) {
	w := t.openWriter("p", "a")
	for _, r := range []event.Range{rangeAt(0, 100), rangeAt(100, 1), rangeAt(500, 256)} {
		out := w.makeEvents(r.First, r.Count)
		out.Range.Fingerprints = makeFingerprints(r.First, r.Count)
		if err := w.Write(t.ctx, out); err != nil {
			t.Fatal(err)
		}
	}
	// The source cut its batch otherwise: the new half brings its own fingerprints.
	out := w.makeEvents(50, 100)
	out.Range.Fingerprints = makeFingerprints(50, 100)
	if err := w.Write(t.ctx, out); err != nil {
		t.Fatal(err)
	}
	w.write(1000, 10)

	done := t.committedRanges("p", "a")
	expectFingerprints(t, done, rangeAt(0, 150))
	expectFingerprints(t, done, rangeAt(500, 256))
	for _, r := range done {
		if r.First >= 1000 && len(r.Fingerprints) > 0 {
			t.Errorf("%v was committed without fingerprints and came back with %d", r, len(r.Fingerprints))
		}
	}
	t.expectRows(rangesOf(rangeAt(0, 150), rangeAt(500, 256), rangeAt(1000, 10)))
}

func sameRangeAgain(t *testEnv) {
	w := t.openWriter("p", "a")
	for range 3 {
		w.write(0, 100)
	}
	next := t.openWriter("p", "a")
	next.write(0, 100)
	next.write(100, 10)
	next.write(100, 10)
	t.expectRows(rangesOf(rangeAt(0, 110)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 110)))
}

func overlappingRanges(t *testEnv) {
	w := t.openWriter("p", "a")
	w.write(100, 100)
	w.write(50, 100)  // has its second half
	w.write(150, 100) // has its first half
	w.write(120, 10)  // has it all
	w.write(400, 10)
	w.write(300, 300) // has something in the middle
	next := t.openWriter("p", "a")
	next.write(0, 700) // has most of it, in several pieces
	t.expectRows(rangesOf(rangeAt(0, 700)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 700)))
}

// retriesAfterCancellation cuts writes off after a time, and whenever the sink checks the
// context, and retries the same output, as a pipeline does.
func retriesAfterCancellation(t *testEnv) {
	const size, checksMax, roundsMax = 500, 30, 20
	w := t.openWriter("p", "a")
	first := uint64(0)
	write := func(ctx context.Context, when string) (cutOff bool) {
		out := w.makeEvents(first, size)
		err := w.Write(ctx, out)
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				t.Fatalf("a write that was cut off %s returned %v, want the context's error", when, err)
			}
			if err := w.Write(t.ctx, out); err != nil {
				t.Fatalf("coming again after a write was cut off %s: %v", when, err)
			}
		}
		first += size
		return err != nil
	}
	late := 0 // writes that were cut off after a time
	for range roundsMax {
		for wait := 20 * time.Microsecond; wait < 40*time.Millisecond; wait += wait / 3 {
			ctx, cancel := context.WithTimeout(t.ctx, wait)
			if write(ctx, fmt.Sprint("after ", wait)) {
				late++
			}
			cancel()
		}
		if late > 0 || t.place.Proxy == nil { // without a connection each may be quicker than the timer
			break
		}
	}
	if late == 0 && t.place.Proxy != nil {
		t.Errorf("no write was cut off after a time")
	}
	for checks := range int32(checksMax) {
		ctx := newCountdownContext(t.ctx, checks)
		cutOff := write(ctx, fmt.Sprintf("after %d checks of the context", checks))
		ctx.cancel()
		checked := ctx.left.Load() < 0
		// A sink may be past the point of return, or a driver check it at the side, but not
		// when it has done nothing so far.
		if checks == 0 && (!checked || !cutOff) {
			t.Errorf("a write whose context was cancelled at the first check was cut off: %v; it checked the context: %v", cutOff, checked)
		}
		if !checked {
			break // it checks the context less often
		}
	}
	t.expectRows(rangesOf(rangeAt(0, first)))
	t.expectCommitted("a", rangesOf(rangeAt(0, first)))
}

// A countdownContext is cancelled at a check, by Done or Err, when so many went before it.
type countdownContext struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int32 // checks; negative: cancelled
}

func newCountdownContext(parent context.Context, checks int32) *countdownContext {
	c := &countdownContext{}
	c.Context, c.cancel = context.WithCancel(parent)
	c.left.Store(checks)
	return c
}

func (c *countdownContext) countCheck() {
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
}

// Done implements context.Context.
func (c *countdownContext) Done() <-chan struct{} {
	c.countCheck()
	return c.Context.Done()
}

// Err implements context.Context.
func (c *countdownContext) Err() error {
	c.countCheck()
	return c.Context.Err()
}

func pipelinesDoNotMix(t *testEnv) {
	one, two := t.openWriter("p", "a"), t.openWriter("q", "a")
	one.write(0, 10)
	if err := two.Write(t.ctx, two.eventsWithIDs(rangeAt(0, 20), 1000)); err != nil {
		t.Fatal(err)
	}
	one.write(10, 10)
	t.expectRows(rangesOf(rangeAt(0, 20), rangeAt(1000, 20)))
	if done := t.committedRanges("p", "a"); !done.Covers(0, 20) || done.Has(20) {
		t.Errorf("pipeline p is told %v, want [0,20)", done)
	}
	if done := t.committedRanges("r", "a"); len(done) != 0 {
		t.Errorf("a third pipeline is told %v", done)
	}
}

func partitionsDoNotMix(t *testEnv) {
	one, two := t.openWriter("p", "a"), t.openWriter("p", "b")
	one.write(0, 10)
	if err := two.Write(t.ctx, two.eventsWithIDs(rangeAt(0, 20), 1000)); err != nil {
		t.Fatal(err)
	}
	one.write(10, 10)
	t.expectRows(rangesOf(rangeAt(0, 20), rangeAt(1000, 20)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 20)))
	t.expectCommitted("b", rangesOf(rangeAt(0, 20)))
	t.expectCommitted("a ", nil)
	t.expectCommitted("A", nil)
}

// eventsWithIDs makes an output of r whose events have ids by away from their positions.
func (h *testWriter) eventsWithIDs(r event.Range, by int64) *event.Output {
	docs, from := make([]string, r.Count), make([]uint32, r.Count)
	for i := range docs {
		docs[i], from[i] = makeDocument(int64(r.First)+int64(i)+by), uint32(i)
	}
	return h.makeOutput(r, from, docs)
}
