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

func (t *trial) exact() bool { return t.place.Guarantee == sink.ExactlyOnce }

// done opens the partition once more and returns what the sink has of it.
func (t *trial) done(pipeline, partition string) event.Ranges {
	t.Helper()
	return t.open(pipeline, partition).done
}

// committed fails the test unless a new owner of the partition is told exactly
// the given positions.
func (t *trial) committed(partition string, want event.Ranges) {
	t.Helper()
	if !t.exact() {
		return
	}
	have := t.done("p", partition)
	for _, r := range want {
		if !have.Covers(r.First, r.End()) {
			t.Errorf("committed %v, of which a new owner is told %v", want, have)
		}
	}
	for _, r := range have {
		if !want.Covers(r.First, r.End()) {
			t.Errorf("committed only %v, but a new owner is told %v", want, have)
		}
	}
}

func rowsLand(t *trial) {
	w := t.open("p", "a")
	if len(w.done) != 0 {
		t.Errorf("an empty sink says that it has %v", w.done)
	}
	w.write(0, 1)
	w.write(1, 7)
	w.write(8, 100)
	t.landed(positions(span(0, 108)))
	t.committed("a", positions(span(0, 108)))
}

func manyRowsLand(t *trial) {
	const rows = 10_000
	w := t.open("p", "a")
	w.write(0, rows)
	t.landed(positions(span(0, rows)))
	t.committed("a", positions(span(0, rows)))
}

func outputWithoutRows(t *trial) {
	w := t.open("p", "a")
	for _, r := range []event.Range{span(0, 50), span(50, 1)} {
		if err := w.Write(t.ctx, w.output(r, nil, nil)); err != nil {
			t.Fatalf("writing %v without rows: %v", r, err)
		}
	}
	sparse := w.output(span(51, 10), []uint32{3, 3}, []string{document(100), document(101)})
	if err := w.Write(t.ctx, sparse); err != nil {
		t.Fatalf("writing two rows of one event: %v", err)
	}
	t.landed(positions(span(100, 2)))
	t.committed("a", positions(span(0, 61)))
}

// concurrentWrites has several goroutines write to one partition. A sink that wants
// its outputs in order is not asked to.
func concurrentWrites(t *trial) {
	const lanes, each, size = 6, 20, 37
	w := t.open("p", "a")
	if w.order != sink.AnyOrder {
		t.Skip("the kind wants its outputs one at a time")
	}
	var group sync.WaitGroup
	for lane := range uint64(lanes) {
		group.Go(func() {
			for i := range uint64(each) {
				first := (i*lanes + lane) * size
				if err := w.Write(t.ctx, w.events(first, size)); err != nil {
					t.Errorf("lane %d, batch %d: %v", lane, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	t.landed(positions(span(0, lanes*each*size)))
	t.committed("a", positions(span(0, lanes*each*size)))
}

// concurrentPartitions has a goroutine write to each of several partitions, in order.
func concurrentPartitions(t *trial) {
	const lanes, each, size = 6, 20, 37
	var group sync.WaitGroup
	for lane := range uint64(lanes) {
		w := t.open("p", fmt.Sprint("lane ", lane))
		group.Go(func() {
			for i := range uint64(each) {
				r := span(i*size, size)
				if err := w.Write(t.ctx, w.shifted(r, int64(lane*each*size))); err != nil {
					t.Errorf("lane %d, batch %d: %v", lane, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	t.landed(positions(span(0, lanes*each*size)))
	for lane := range lanes {
		t.committed(fmt.Sprint("lane ", lane), positions(span(0, each*size)))
	}
}

func callerReusesItsMemory(t *trial) {
	w := t.open("p", "a")
	for first := uint64(0); first < 60; first += 20 {
		out := w.events(first, 20)
		out.Range.Prints = prints(first, 20)
		if err := w.Write(t.ctx, out); err != nil {
			t.Fatal(err)
		}
		scribble(out)
	}
	t.landed(positions(span(0, 60)))
	if t.exact() {
		checkPrints(t, t.done("p", "a"), span(0, 60))
	}
}

func closedWriter(t *trial) {
	s := t.place.Sink(t.T, "p")
	defer s.Close()
	w, _, err := s.Open(t.ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	h := &hand{Writer: w, t: t, partition: "a", columns: s.Traits().Columns}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.ctx, h.events(0, 3)); err == nil {
		t.Error("a closed writer took an output")
	}
	t.landed(nil)
}

func cancelledWrite(t *trial) {
	w := t.open("p", "a")
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	if err := w.Write(ctx, w.events(0, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("a write whose context was cancelled before it began returned %v", err)
	}
	t.landed(nil)
	w.write(0, 10)
	t.landed(positions(span(0, 10)))
}

func badRowsAreNamed(t *trial) {
	if t.place.Bad == nil {
		t.Skip("the kind refuses no document")
	}
	const size = 100
	w := t.open("p", "a")
	var good event.Ranges
	for i, bad := range [][]int{{0}, {99}, {50, 51}, {3, 4, 61}, {0, 20, 40, 60, 80, 99}, upTo(size)} {
		first := uint64(i * size)
		docs, from := make([]string, size), make([]uint32, size)
		for row := range docs {
			docs[row], from[row] = document(int64(first)+int64(row)), uint32(row)
		}
		for _, row := range bad {
			docs[row] = t.place.Bad(int64(first) + int64(row))
		}
		refused(t, w.Write(t.ctx, w.output(span(first, size), from, docs)), bad)
		t.landed(good)

		var rest []string
		var restFrom []uint32
		for row := range docs {
			if !slices.Contains(bad, row) {
				rest, restFrom = append(rest, docs[row]), append(restFrom, uint32(row))
				good.Add(span(first+uint64(row), 1))
			}
		}
		if err := w.Write(t.ctx, w.output(span(first, size), restFrom, rest)); err != nil {
			t.Fatalf("writing the good rows: %v", err)
		}
		t.landed(good)
	}
	t.committed("a", positions(span(0, 6*size)))
}

// refused fails the test unless err names exactly the given rows.
func refused(t *trial, err error, rows []int) {
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

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
