package sinktest

import (
	"context"
	"errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// openPositions makes a sink whose memory can be looked at, or skips the test.
func (t *testEnv) openPositions(pipeline string) sink.PositionStore {
	t.Helper()
	s := t.place.Sink(t.T, pipeline)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the sink: %v", err)
		}
	})
	positions := s.Traits().Positions
	if positions == nil {
		t.Skip("the kind does not show positions")
	}
	return positions
}

// expectPositions fails the test unless k has exactly want of each partition; one
// without ranges need not be there.
func (t *testEnv) expectPositions(k sink.PositionStore, want map[string]event.Ranges) {
	t.Helper()
	have, err := k.Positions(t.ctx)
	if err != nil {
		t.Fatalf("asking for positions: %v", err)
	}
	for partition := range have {
		if len(have[partition]) > 0 && len(want[partition]) == 0 {
			t.Errorf("positions %v of partition %q came from nowhere", have[partition], partition)
		}
	}
	for partition, ranges := range want {
		for _, r := range ranges {
			if !have[partition].Covers(r.First, r.End()) {
				t.Errorf("of partition %q there is %v, want %v", partition, have[partition], ranges)
			}
		}
		for _, r := range have[partition] {
			if !ranges.Covers(r.First, r.End()) {
				t.Errorf("of partition %q there is %v, want only %v", partition, have[partition], ranges)
			}
		}
	}
}

func (t *testEnv) setPosition(k sink.PositionStore, partition string, next uint64) {
	t.Helper()
	if err := k.SetPosition(t.ctx, partition, next); err != nil {
		t.Fatalf("setting the position of %s to %d: %v", partition, next, err)
	}
}

func positionsAreShown(t *testEnv) {
	k := t.openPositions("p")
	t.expectPositions(k, nil)
	a, b, other := t.openWriter("p", "a"), t.openWriter("p", "b"), t.openWriter("q", "a")
	a.write(0, 10)
	a.write(50, 5)
	b.write(3, 4)
	if err := other.Write(t.ctx, other.eventsWithIDs(rangeAt(0, 100), 1000)); err != nil {
		t.Fatal(err)
	}
	t.expectPositions(k, map[string]event.Ranges{
		"a": rangesOf(rangeAt(0, 10), rangeAt(50, 5)),
		"b": rangesOf(rangeAt(3, 4)),
	})
}

// positionIsSet moves the position back, forth and to where nothing was: what
// is past it lands again, what is before it does not.
func positionIsSet(t *testEnv) {
	k := t.openPositions("p")
	t.setPosition(k, "new", 7)
	w := t.openWriter("p", "new")
	if err := w.Write(t.ctx, w.eventsWithIDs(rangeAt(0, 10), 1000)); err != nil {
		t.Fatal(err)
	}
	want := []event.Range{rangeAt(1007, 3)}
	t.expectRows(rangesOf(want...))

	w = t.openWriter("p", "a")
	w.write(0, 10)
	w.write(20, 10)
	t.setPosition(k, "a", 5)
	t.expectPositions(k, map[string]event.Ranges{"a": rangesOf(rangeAt(0, 5)), "new": rangesOf(rangeAt(0, 10))})
	t.expectCommitted("a", rangesOf(rangeAt(0, 5)))
	w = t.openWriter("p", "a")
	if err := w.Write(t.ctx, w.eventsWithIDs(rangeAt(0, 30), 2000)); err != nil {
		t.Fatal(err)
	}
	want = append(want, rangeAt(0, 10), rangeAt(20, 10), rangeAt(2005, 25))
	t.expectRows(rangesOf(want...))

	t.setPosition(k, "a", 100)
	t.expectCommitted("a", rangesOf(rangeAt(0, 100)))
	w = t.openWriter("p", "a")
	w.write(0, 110)
	want = append(want, rangeAt(100, 10))
	t.expectRows(rangesOf(want...))

	t.setPosition(k, "a", 0)
	t.expectCommitted("a", nil)
}

// setPositionKeepsFingerprints: the fingerprints of events before the position
// remain, so that the source can compare them.
func setPositionKeepsFingerprints(t *testEnv) {
	k := t.openPositions("p")
	w := t.openWriter("p", "a")
	out := w.makeEvents(0, 20)
	out.Range.Fingerprints = makeFingerprints(0, 20)
	if err := w.Write(t.ctx, out); err != nil {
		t.Fatal(err)
	}
	t.setPosition(k, "a", 12)
	done := t.committedRanges("p", "a")
	expectFingerprints(t, done, rangeAt(0, 12))
	if done.Has(12) {
		t.Errorf("the position was set to 12, and a new owner is told %v", done)
	}
}

func setPositionFences(t *testEnv) {
	k := t.openPositions("p")
	a, b := t.openWriter("p", "a"), t.openWriter("p", "b")
	a.write(0, 10)
	t.setPosition(k, "a", 5)
	for range 2 {
		if err := a.Write(t.ctx, a.makeEvents(10, 10)); !errors.Is(err, sink.ErrFenced) {
			t.Fatalf("the owner's write after its position was set returned %v, want ErrFenced", err)
		}
	}
	b.write(30, 10)
	t.expectRows(rangesOf(rangeAt(0, 10), rangeAt(30, 10)))
}

// verifyFindsTheOwner asks a writer that has written nothing, that has, and that
// has lost its partition.
func verifyFindsTheOwner(t *testEnv) {
	w, other := t.openWriter("p", "a"), t.openWriter("p", "b")
	if t.place.NoVerify {
		t.Skip("the kind's writers cannot tell whether the place has what they wrote")
	}
	for i := range uint64(4) {
		if err := w.Verify(t.ctx); err != nil {
			t.Fatalf("after %d writes: %v", i, err)
		}
		w.write(20*(3-i), 10)
	}
	t.openWriter("p", "a")
	for range 2 {
		if err := w.Verify(t.ctx); !errors.Is(err, sink.ErrFenced) {
			t.Fatalf("a writer whose partition another has: %v, want ErrFenced", err)
		}
	}
	if err := other.Verify(t.ctx); err != nil {
		t.Errorf("a writer of another partition: %v", err)
	}
}

// checkFindsNothing tries a place that has no fault, before and after its use.
func checkFindsNothing(t *testEnv) {
	s := t.place.Sink(t.T, "p")
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the sink: %v", err)
		}
	})
	tryOut := s.Traits().Check
	if tryOut == nil {
		t.Skip("the kind cannot be checked")
	}
	check := func() {
		t.Helper()
		if err := tryOut(t.ctx); err != nil {
			t.Fatalf("trying a sink that works: %v", err)
		}
	}
	check()
	w := t.openWriter("p", "a")
	w.write(0, 10)
	check()
	w.write(10, 10) // the writer was not fenced
	t.expectRows(rangesOf(rangeAt(0, 20)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 20)))
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	if err := tryOut(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("trying a sink with a cancelled context returned %v", err)
	}
}
