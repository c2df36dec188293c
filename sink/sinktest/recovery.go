package sinktest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/sink"
)

// writeFingerprinted writes the events of [first, first+count) with their fingerprints.
func (h *testWriter) writeFingerprinted(first, count uint64) error {
	out := h.makeEvents(first, count)
	out.Range.Fingerprints = makeFingerprints(first, count)
	return h.Write(h.t.ctx, out)
}

// compactEvery is how many commits lie between two compactions of package positions.
const compactEvery = 256

// manyCommitsComeBack commits so often that the sink compacts its ranges several times
// over: positions, fingerprints and rows stay what they are, and Verify finds them.
func manyCommitsComeBack(t *testEnv) {
	const commits = compactEvery
	w := t.openWriter("p", "a")
	next := uint64(0)
	commit := func(n int) {
		for i := range n {
			size := uint64(1 + i%3)
			if i%100 == 50 {
				size = 300 // keeps an entry of its own, right behind a compacted one
			}
			if err := w.writeFingerprinted(next, size); err != nil {
				t.Fatalf("commit at %d: %v", next, err)
			}
			next += size
			// The last range lies in a compacted one now and then: it is found in it.
			if err := w.Verify(t.ctx); err != nil {
				t.Fatalf("verifying after the commit at %d: %v", next, err)
			}
		}
	}
	commit(2*commits + 10)
	for range 2 {
		next += 1000 // a gap, which no compaction may close
		w = t.openWriter("p", "a")
		commit(commits + 10)
	}
	done := t.committedRanges("p", "a")
	if gaps := done.Missing(rangeAt(0, next)); len(gaps) != 2 || gaps[0].Count != 1000 || gaps[1].Count != 1000 {
		t.Fatalf("of [0,%d), with two gaps of 1000, a new owner is told %v", next, done)
	}
	for _, r := range done {
		expectFingerprints(t, done, rangeAt(r.First, r.Count))
	}
	t.expectRows(done)
	w = t.openWriter("p", "a")
	w.write(0, next) // which only the gaps lack
	t.expectRows(rangesOf(rangeAt(0, next)))
}

// compactionSparesNeighbours compacts small ranges between two that keep entries of their own,
// at positions that differ by less than a double can tell.
func compactionSparesNeighbours(t *testEnv) {
	w := t.openWriter("p", "a")
	var want event.Ranges
	for _, first := range []uint64{0, 1 << 53, 1 << 62} {
		next := first
		for _, count := range slices.Concat([]uint64{300}, slices.Repeat([]uint64{3}, 84), []uint64{300}) {
			out := w.makeOutput(rangeAt(next, count), nil, nil)
			out.Range.Fingerprints = makeFingerprints(next, count)
			if err := w.Write(t.ctx, out); err != nil {
				t.Fatalf("writing %v: %v", out.Range, err)
			}
			next += count
		}
		want.Add(rangeAt(first, next-first))
	}
	t.expectCommitted("a", want)
	done := t.committedRanges("p", "a")
	for _, r := range want {
		expectFingerprints(t, done, r)
	}
}

// positionsOfAllSizes has positions that differ in their number of digits, that a
// double does not hold, and that no signed integer holds.
func positionsOfAllSizes(t *testEnv) {
	var want event.Ranges
	w := t.openWriter("p", "a")
	for _, middle := range []uint64{10, 100, 1000, 1 << 31, 1 << 32, 1 << 53, 1 << 60, 1 << 63, 1<<64 - 200} {
		for first := middle - 9; first < middle+9; first += 3 {
			out := w.makeOutput(rangeAt(first, 3), nil, nil)
			out.Range.Fingerprints = makeFingerprints(first, 3)
			if err := w.Write(t.ctx, out); err != nil {
				t.Fatalf("writing %v: %v", out.Range, err)
			}
			want.Add(rangeAt(first, 3))
			if err := w.Verify(t.ctx); err != nil {
				t.Fatalf("verifying %v: %v", out.Range, err)
			}
		}
	}
	for range 256 { // until all is compacted
		end := want[len(want)-1].End()
		if err := w.Write(t.ctx, w.makeOutput(rangeAt(end, 1), nil, nil)); err != nil {
			t.Fatal(err)
		}
		want.Add(rangeAt(end, 1))
		if end > 1<<64-10 {
			break
		}
	}
	t.expectCommitted("a", want)
}

// overlappingLanes has lanes write ranges that overlap in part, at the same time.
func overlappingLanes(t *testEnv) {
	w := t.openWriter("p", "a")
	if w.order != sink.AnyOrder {
		t.Skip("the kind's outputs come one at a time")
	}
	const lanes, rounds, size = 4, 20, 60
	var group sync.WaitGroup
	for lane := range uint64(lanes) {
		group.Go(func() {
			for round := range uint64(rounds) {
				first := round*size + lane*size/lanes
				err := w.Write(t.ctx, w.makeEvents(first, size))
				for errors.Is(err, sink.ErrConflict) {
					err = w.Write(t.ctx, w.makeEvents(first, size))
				}
				if err != nil {
					t.Errorf("lane %d at %d: %v", lane, first, err)
					return
				}
			}
		})
	}
	group.Wait()
	want := rangesOf(rangeAt(0, rounds*size+(lanes-1)*size/lanes))
	t.expectRows(want)
	t.expectCommitted("a", want)
}

// lostConnections cuts connections at the commits of writes, before the server has them
// and before its reply arrives. Some retries have other boundaries than the first attempt.
func lostConnections(t *testEnv) {
	if t.place.Proxy == nil {
		t.Skip("the kind has no connections")
	}
	random := testseed.New(t)
	p := t.place.Proxy(t.T)
	w := t.openWriter("p", "a")
	next := uint64(0)
	for i := range 300 {
		size := uint64(1 + random.IntN(4))
		switch {
		case random.IntN(8) == 0 || i > 250 && i < 262: // sometimes one after the other
			p.SetFault(DropReply)
		case random.IntN(8) == 0:
			p.SetFault(DropRequest)
		}
		err := w.writeFingerprinted(next, size)
		for tries := 0; err != nil; tries++ {
			ExpectClass(t.T, err, Transient)
			if tries == 5 {
				t.Fatalf("still failing after %d attempts: %v", tries, err)
			}
			if random.IntN(2) == 0 {
				size++
			}
			err = w.writeFingerprinted(next, size)
		}
		next += size
	}
	p.SetFault(NoFault)
	t.expectRows(rangesOf(rangeAt(0, next)))
	done := t.committedRanges("p", "a")
	expectFingerprints(t, done, rangeAt(0, next))
	t.expectCommitted("a", rangesOf(rangeAt(0, next)))
}

// lostCompactions cuts the connection at compactions: so that the server gets one after the
// next, which it must not undo, before the server has it, and before its reply arrives.
func lostCompactions(t *testEnv) {
	if t.place.Proxy == nil {
		t.Skip("the kind has no connections")
	}
	p := t.place.Proxy(t.T)
	w := t.openWriter("p", "a")
	const withoutFingerprints = 2 * compactEvery // ranges without fingerprints: each compaction takes all
	next := uint64(0)
	write := func() (commits int) {
		before, out := p.Commits(), w.makeEvents(next, 1)
		if next >= withoutFingerprints {
			out.Range.Fingerprints = makeFingerprints(next, 1)
		}
		if err := w.Write(t.ctx, out); err != nil {
			t.Fatalf("writing at %d: %v", next, err)
		}
		next++
		return p.Commits() - before
	}
	compact := func(f Fault) {
		ofWrite := 0 // how often one asks for a commit, if it does not compact
		for range compactEvery - 1 {
			ofWrite = write()
		}
		p.SetFaultAfter(ofWrite, f)
		if all := write(); all <= ofWrite || p.Waiting() {
			t.Fatalf("no compaction after %d commits met fault %d", next, f)
		}
	}
	compact(Delay)
	compact(NoFault)
	t.deliverLate(p)
	compact(DropRequest)
	compact(DropReply)
	write()
	if err := w.Verify(t.ctx); err != nil {
		t.Error(err)
	}
	t.expectCommitted("a", rangesOf(rangeAt(0, next)))
	expectFingerprints(t, t.committedRanges("p", "a"), rangeAt(withoutFingerprints, next-withoutFingerprints))
	t.expectRows(rangesOf(rangeAt(0, next)))
}

// commitArrivesLate lets the server get a commit after the writer has given it up and
// written the events again, with another range.
func commitArrivesLate(t *testEnv) {
	if t.place.Proxy == nil {
		t.Skip("the kind has no connections")
	}
	p := t.place.Proxy(t.T)
	w := t.openWriter("p", "a")
	p.SetFault(Delay)
	ExpectClass(t.T, w.Write(t.ctx, w.makeEvents(100, 100)), Transient)
	w.write(0, 300)
	t.deliverLate(p)
	t.expectRows(rangesOf(rangeAt(0, 300)))
	w.write(300, 10) // the writer has not fenced itself
	t.expectRows(rangesOf(rangeAt(0, 310)))
}

// deliverLate lets the server get what a proxy has delayed, and waits for its answer.
func (t *testEnv) deliverLate(p *Proxy) {
	t.Helper()
	close(p.Late)
	select {
	case <-p.Done:
	case <-t.ctx.Done():
		t.Fatal("the server does not answer what was delayed")
	}
}

// lostConnectionOfFencedWriter: the writer learns that it is fenced, not what was
// committed, and never takes the partition back.
func lostConnectionOfFencedWriter(t *testEnv) {
	if t.place.Proxy == nil {
		t.Skip("the kind has no connections")
	}
	p := t.place.Proxy(t.T)
	old := t.openWriter("p", "a")
	fresh := t.openWriter("p", "a")
	for _, fault := range []Fault{DropReply, DropRequest, NoFault} {
		p.SetFault(fault)
		if err := old.Write(t.ctx, old.makeEvents(0, 100)); !errors.Is(err, sink.ErrFenced) {
			t.Errorf("fault %d: the old owner's write returned %v, want ErrFenced", fault, err)
		}
	}
	fresh.write(0, 10)
	t.expectRows(rangesOf(rangeAt(0, 10)))
}

// setBack sets the place back to an older state while a writer has it open. The writer
// notices, by Verify and by Write, and writes nothing more; a new one is told what
// remains, and writes the rest once.
func setBack(t *testEnv) {
	if t.place.Snapshot == nil {
		t.Skip("the kind's place cannot be set back")
	}
	w, idle := t.openWriter("p", "a"), t.openWriter("p", "b")
	w.write(0, 300)
	if err := idle.Write(t.ctx, idle.eventsWithIDs(rangeAt(0, 10), 1000)); err != nil {
		t.Fatal(err)
	}
	restore := t.place.Snapshot(t.T)
	w.write(300, 300)
	if err := w.Verify(t.ctx); err != nil {
		t.Fatalf("before the place was set back: %v", err)
	}
	restore()
	lost := func(what string, err error) {
		t.Helper()
		if !event.IsPermanent(err) && !errors.Is(err, sink.ErrFenced) {
			t.Errorf("%s after the place was set back returned %v, want a permanent error or ErrFenced", what, err)
		}
	}
	for range 2 {
		lost("Verify", w.Verify(t.ctx))
	}
	lost("Write", w.Write(t.ctx, w.makeEvents(600, 10)))
	t.expectRows(rangesOf(rangeAt(0, 300), rangeAt(1000, 10)))
	if err := idle.Verify(t.ctx); err != nil && !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a writer that lost nothing: %v", err)
	}
	next := t.openWriter("p", "a")
	if fmt.Sprint(next.committed) != fmt.Sprint(rangesOf(rangeAt(0, 300))) {
		t.Errorf("a new owner is told %v, want [0,300)", next.committed)
	}
	next.write(250, 400)
	t.expectRows(rangesOf(rangeAt(0, 650), rangeAt(1000, 10)))
}
