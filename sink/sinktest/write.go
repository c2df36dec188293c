package sinktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

func (t *testEnv) isExactlyOnce() bool { return t.place.Guarantee == sink.ExactlyOnce }

// committedRanges opens the partition once more and returns what the sink has of it.
func (t *testEnv) committedRanges(pipeline, partition string) event.Ranges {
	t.Helper()
	return t.openWriter(pipeline, partition).committed
}

// expectCommitted fails the test unless a new owner of the partition is told exactly
// the given positions.
func (t *testEnv) expectCommitted(partition string, want event.Ranges) {
	t.Helper()
	if !t.isExactlyOnce() {
		return
	}
	have := t.committedRanges("p", partition)
	for _, r := range want {
		if !have.Covers(r.First, r.End()) {
			t.Errorf("committed %v, a new owner is told %v", want, have)
		}
	}
	for _, r := range have {
		if !want.Covers(r.First, r.End()) {
			t.Errorf("committed only %v, but a new owner is told %v", want, have)
		}
	}
}

func rowsArrive(t *testEnv) {
	w := t.openWriter("p", "a")
	if len(w.committed) != 0 {
		t.Errorf("an empty sink says that it has %v", w.committed)
	}
	w.write(0, 1)
	w.write(1, 7)
	w.write(8, 100)
	t.expectRows(rangesOf(rangeAt(0, 108)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 108)))
}

func manyRowsArrive(t *testEnv) {
	const rows = 10_000
	w := t.openWriter("p", "a")
	w.write(0, rows)
	t.expectRows(rangesOf(rangeAt(0, rows)))
	t.expectCommitted("a", rangesOf(rangeAt(0, rows)))
}

func outputWithoutRows(t *testEnv) {
	w := t.openWriter("p", "a")
	for _, r := range []event.Range{rangeAt(0, 50), rangeAt(50, 1)} {
		if err := w.Write(t.ctx, w.makeOutput(r, nil, nil)); err != nil {
			t.Fatalf("writing %v without rows: %v", r, err)
		}
	}
	sparse := w.makeOutput(rangeAt(51, 10), []uint32{3, 3}, []string{makeDocument(100), makeDocument(101)})
	if err := w.Write(t.ctx, sparse); err != nil {
		t.Fatalf("writing two rows of one event: %v", err)
	}
	t.expectRows(rangesOf(rangeAt(100, 2)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 61)))
}

// concurrentWrites has several goroutines write to one partition. A sink that wants
// its outputs in order is not asked to.
func concurrentWrites(t *testEnv) {
	const lanes, each, size = 6, 20, 37
	w := t.openWriter("p", "a")
	if w.order != sink.AnyOrder {
		t.Skip("the kind wants its outputs one at a time")
	}
	var group sync.WaitGroup
	for lane := range uint64(lanes) {
		group.Go(func() {
			for i := range uint64(each) {
				first := (i*lanes + lane) * size
				if err := w.Write(t.ctx, w.makeEvents(first, size)); err != nil {
					t.Errorf("lane %d, batch %d: %v", lane, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	t.expectRows(rangesOf(rangeAt(0, lanes*each*size)))
	t.expectCommitted("a", rangesOf(rangeAt(0, lanes*each*size)))
}

// concurrentPartitions has a goroutine write to each of several partitions, in order.
func concurrentPartitions(t *testEnv) {
	const lanes, each, size = 6, 20, 37
	var group sync.WaitGroup
	for lane := range uint64(lanes) {
		w := t.openWriter("p", fmt.Sprint("lane ", lane))
		group.Go(func() {
			for i := range uint64(each) {
				r := rangeAt(i*size, size)
				if err := w.Write(t.ctx, w.eventsWithIDs(r, int64(lane*each*size))); err != nil {
					t.Errorf("lane %d, batch %d: %v", lane, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	t.expectRows(rangesOf(rangeAt(0, lanes*each*size)))
	for lane := range lanes {
		t.expectCommitted(fmt.Sprint("lane ", lane), rangesOf(rangeAt(0, each*size)))
	}
}

func callerReusesItsMemory(t *testEnv) {
	w := t.openWriter("p", "a")
	for first := uint64(0); first < 60; first += 20 {
		out := w.makeEvents(first, 20)
		out.Range.Fingerprints = makeFingerprints(first, 20)
		if err := w.Write(t.ctx, out); err != nil {
			t.Fatal(err)
		}
		overwrite(out)
	}
	t.expectRows(rangesOf(rangeAt(0, 60)))
	if t.isExactlyOnce() {
		expectFingerprints(t, t.committedRanges("p", "a"), rangeAt(0, 60))
	}
}

func closedWriter(t *testEnv) {
	s := t.place.Sink(t.T, "p")
	defer s.Close()
	w, _, err := s.Open(t.ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	h := &testWriter{Writer: w, t: t, partition: "a", columns: s.Traits().Columns}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ExpectClass(t.T, w.Write(t.ctx, h.makeEvents(0, 3)), Transient)
	t.expectRows(nil)
}

func cancelledWrite(t *testEnv) {
	w := t.openWriter("p", "a")
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	if err := w.Write(ctx, w.makeEvents(0, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("a write whose context was cancelled before it began returned %v", err)
	}
	t.expectRows(nil)
	w.write(0, 10)
	t.expectRows(rangesOf(rangeAt(0, 10)))
}

func rejectedRowsAreNamed(t *testEnv) {
	if t.place.RejectedDoc == nil {
		t.Skip("the kind refuses no document")
	}
	const size = 100
	w := t.openWriter("p", "a")
	var good event.Ranges
	for i, bad := range [][]int{{0}, {99}, {50, 51}, {3, 4, 61}, {0, 20, 40, 60, 80, 99}, indexesTo(size)} {
		first := uint64(i * size)
		docs, from := make([]string, size), make([]uint32, size)
		for row := range docs {
			docs[row], from[row] = makeDocument(int64(first)+int64(row)), uint32(row)
		}
		for _, row := range bad {
			docs[row] = t.place.RejectedDoc(int64(first) + int64(row))
		}
		expectRejected(t, w.Write(t.ctx, w.makeOutput(rangeAt(first, size), from, docs)), bad)
		t.expectRows(good)

		var rest []string
		var restFrom []uint32
		for row := range docs {
			if !slices.Contains(bad, row) {
				rest, restFrom = append(rest, docs[row]), append(restFrom, uint32(row))
				good.Add(rangeAt(first+uint64(row), 1))
			}
		}
		if err := w.Write(t.ctx, w.makeOutput(rangeAt(first, size), restFrom, rest)); err != nil {
			t.Fatalf("writing the good rows: %v", err)
		}
		t.expectRows(good)
	}
	t.expectCommitted("a", rangesOf(rangeAt(0, 6*size)))
}

// expectRejected fails the test unless err names exactly the given rows.
func expectRejected(t *testEnv, err error, rows []int) {
	t.Helper()
	refusal, ok := errors.AsType[*sink.RowErrors](err)
	if !ok {
		t.Fatalf("writing bad rows %v returned %v, want *sink.RowErrors", rows, err)
	}
	var named []int
	for _, row := range refusal.Rows {
		named = append(named, row.Row)
		if row.Err == nil {
			t.Errorf("row %d is refused without a reason", row.Row)
		}
	}
	if !slices.Equal(named, rows) {
		t.Fatalf("rows %v were named, want %v: %v", named, rows, err)
	}
}

func indexesTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
