package sinktest

import (
	"context"
	"time"

	"github.com/perigeedb/perigee/event"
)

func rangesComeBack(t *trial) {
	w := t.open("p", "a")
	for _, r := range []event.Range{span(10, 5), span(100, 50), span(15, 5), span(0, 3)} {
		w.write(r.First, r.Count)
	}
	t.committed("a", positions(span(0, 3), span(10, 10), span(100, 50)))
	t.committed("a", positions(span(0, 3), span(10, 10), span(100, 50)))
}

// prints are what the suite takes for the fingerprints of its events.
func prints(first, count uint64) []uint32 {
	all := make([]uint32, count)
	for i := range all {
		all[i] = uint32((first + uint64(i)) * 2654435761)
	}
	return all
}

// checkPrints fails the test unless done has want with its own fingerprints.
func checkPrints(t *trial, done event.Ranges, want event.Range) {
	t.Helper()
	seen := uint64(0)
	for _, r := range done.Intersect(positions(want)) {
		expect := prints(r.First, r.Count)
		if len(r.Prints) != len(expect) {
			t.Fatalf("%v came back with %d fingerprints", r, len(r.Prints))
		}
		for i, print := range r.Prints {
			if print != expect[i] {
				t.Fatalf("position %d came back with fingerprint %#x, want %#x", r.First+uint64(i), print, expect[i])
			}
		}
		seen += r.Count
	}
	if seen != want.Count {
		t.Errorf("%d of the %d positions of %v came back: %v", seen, want.Count, want, done)
	}
}

func fingerprintsComeBack(t *trial) {
	w := t.open("p", "a")
	for _, r := range []event.Range{span(0, 100), span(100, 1), span(500, 256)} {
		out := w.events(r.First, r.Count)
		out.Range.Prints = prints(r.First, r.Count)
		if err := w.Write(t.ctx, out); err != nil {
			t.Fatal(err)
		}
	}
	// The source cut its batch otherwise: the new half brings its own prints.
	out := w.events(50, 100)
	out.Range.Prints = prints(50, 100)
	if err := w.Write(t.ctx, out); err != nil {
		t.Fatal(err)
	}
	w.write(1000, 10)

	done := t.done("p", "a")
	checkPrints(t, done, span(0, 150))
	checkPrints(t, done, span(500, 256))
	for _, r := range done {
		if r.First >= 1000 && len(r.Prints) > 0 {
			t.Errorf("%v was committed without fingerprints and came back with %d", r, len(r.Prints))
		}
	}
	t.landed(positions(span(0, 150), span(500, 256), span(1000, 10)))
}

func sameRangeAgain(t *trial) {
	w := t.open("p", "a")
	for range 3 {
		w.write(0, 100)
	}
	next := t.open("p", "a")
	next.write(0, 100)
	next.write(100, 10)
	next.write(100, 10)
	t.landed(positions(span(0, 110)))
	t.committed("a", positions(span(0, 110)))
}

func overlappingRanges(t *trial) {
	w := t.open("p", "a")
	w.write(100, 100)
	w.write(50, 100)  // has its second half
	w.write(150, 100) // has its first half
	w.write(120, 10)  // has it all
	w.write(400, 10)
	w.write(300, 300) // has something in the middle
	next := t.open("p", "a")
	next.write(0, 700) // has most of it, in several pieces
	t.landed(positions(span(0, 700)))
	t.committed("a", positions(span(0, 700)))
}

// retriesAfterCancellation cuts writes off at every moment it can hit and comes
// again with the same output, as a pipeline does.
func retriesAfterCancellation(t *trial) {
	const size = 500
	w := t.open("p", "a")
	first := uint64(0)
	for wait := 20 * time.Microsecond; wait < 40*time.Millisecond; wait += wait / 3 {
		out := w.events(first, size)
		ctx, cancel := context.WithTimeout(t.ctx, wait)
		err := w.Write(ctx, out)
		cancel()
		if err != nil {
			if err := w.Write(t.ctx, out); err != nil {
				t.Fatalf("coming again after a write was cut off at %v: %v", wait, err)
			}
		}
		first += size
	}
	t.landed(positions(span(0, first)))
	t.committed("a", positions(span(0, first)))
}

func pipelinesDoNotMix(t *trial) {
	one, two := t.open("p", "a"), t.open("q", "a")
	one.write(0, 10)
	if err := two.Write(t.ctx, two.shifted(span(0, 20), 1000)); err != nil {
		t.Fatal(err)
	}
	one.write(10, 10)
	t.landed(positions(span(0, 20), span(1000, 20)))
	if done := t.done("p", "a"); !done.Covers(0, 20) || done.Has(20) {
		t.Errorf("pipeline p is told %v, want [0,20)", done)
	}
	if done := t.done("r", "a"); len(done) != 0 {
		t.Errorf("a third pipeline is told %v", done)
	}
}

func partitionsDoNotMix(t *trial) {
	one, two := t.open("p", "a"), t.open("p", "b")
	one.write(0, 10)
	if err := two.Write(t.ctx, two.shifted(span(0, 20), 1000)); err != nil {
		t.Fatal(err)
	}
	one.write(10, 10)
	t.landed(positions(span(0, 20), span(1000, 20)))
	t.committed("a", positions(span(0, 20)))
	t.committed("b", positions(span(0, 20)))
	t.committed("a ", nil)
	t.committed("A", nil)
}

// shifted makes an output of r whose events have ids by away from their positions.
func (h *hand) shifted(r event.Range, by int64) *event.Output {
	docs, from := make([]string, r.Count), make([]uint32, r.Count)
	for i := range docs {
		docs[i], from[i] = document(int64(r.First)+int64(i)+by), uint32(i)
	}
	return h.output(r, from, docs)
}
