// Package sinktest is the suite that every kind of sink passes. It holds a kind
// to the contract of package sink, as far as the kind's guarantee goes: what a
// sink at least once promises is asked of all, the rest of those that say
// exactly once. What only some kinds can do, as sink.Traits says, is asked of those.
//
// The suite writes events with an id and a name through sinks that the kind's
// test makes for it, and reads them back with the test's own means.
package sinktest

import (
	"context"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A Place is where sinks write during one test, such as a fresh table.
type Place struct {
	Guarantee sink.Guarantee

	// Sink makes a sink of the named pipeline on the place, as one more process
	// would. The suite closes it. Its columns, if it wants any, are filled from
	// documents of the form {"id":1,"name":"event 1"}.
	Sink func(t *testing.T, pipeline string) sink.Sink

	// Rows returns all that has landed: if the place is Ordered, in the order that its
	// readers see, otherwise in any order.
	Rows func(t *testing.T) []Row

	// Ordered says that readers of the place see the order of commits, as those of a
	// file or a topic do. Rows must then follow the source.
	Ordered bool

	// Bad is a document that the sink refuses for what it holds, however often
	// it comes. It is nil when the sink refuses no document.
	Bad func(id int64) string

	// NoVerify says that the kind's writers cannot tell whether the place still has
	// what they committed: Verify returns nil.
	NoVerify bool

	// Stall makes the next writes hang inside their transaction until release is
	// called; hanging returns when one does. It is nil when there is no such way.
	Stall func(t *testing.T) (hanging, release func())

	// Deadlock makes the next write of rows with the given ids, in that order, the
	// victim of a deadlock: another transaction writes the second. collide waits for
	// the write to hang at that row, and writes the first; end ends the other
	// transaction. It is nil when no other transaction can write to the place.
	Deadlock func(t *testing.T, ids []int64) (collide, end func())
}

// A Row is what a place holds of one event.
type Row struct {
	ID   int64
	Name string
}

// patience ends a test that hangs. No test needs a fraction of it.
const patience = 30 * time.Second

// Run runs the suite. It asks for a new, empty place for each of its tests.
func Run(t *testing.T, place func(t *testing.T) Place) {
	atLeastOnce := []test{
		{"RowsLand", rowsLand},
		{"ManyRowsLand", manyRowsLand},
		{"OutputWithoutRows", outputWithoutRows},
		{"ConcurrentWrites", concurrentWrites},
		{"ConcurrentPartitions", concurrentPartitions},
		{"LanesKeepOrder", lanesKeepOrder},
		{"CallerReusesItsMemory", callerReusesItsMemory},
		{"ClosedWriter", closedWriter},
		{"CancelledWrite", cancelledWrite},
		{"BadRowsAreNamed", badRowsAreNamed},
		{"CheckFindsNothing", checkFindsNothing},
	}
	exactlyOnce := []test{
		{"RangesComeBack", rangesComeBack},
		{"FingerprintsComeBack", fingerprintsComeBack},
		{"SameRangeAgain", sameRangeAgain},
		{"OverlappingRanges", overlappingRanges},
		{"RetriesAfterCancellation", retriesAfterCancellation},
		{"PipelinesDoNotMix", pipelinesDoNotMix},
		{"PartitionsDoNotMix", partitionsDoNotMix},
		{"TakeoverFences", takeoverFences},
		{"TakeoverDuringWrites", takeoverDuringWrites},
		{"TakeoverInsideTransaction", takeoverInsideTransaction},
		{"ConflictPasses", conflictPasses},
		{"PositionsAreShown", positionsAreShown},
		{"PositionIsSet", positionIsSet},
		{"SetPositionKeepsFingerprints", setPositionKeepsFingerprints},
		{"SetPositionFences", setPositionFences},
		{"VerifyFindsTheOwner", verifyFindsTheOwner},
		{"LeaseIsExclusive", leaseIsExclusive},
		{"LeaseIsReleased", leaseIsReleased},
		{"LeaseRunsOut", leaseRunsOut},
		{"LeaseIsRenewed", leaseIsRenewed},
		{"LeaseIsContended", leaseIsContended},
		{"LeasesDoNotMix", leasesDoNotMix},
		{"LeaseLeavesRangesAlone", leaseLeavesRangesAlone},
		{"AliveCounts", aliveCounts},
		{"AliveAtOnce", aliveAtOnce},
	}
	for _, test := range atLeastOnce {
		t.Run(test.name, func(t *testing.T) { test.run(newTrial(t, place(t))) })
	}
	for _, test := range exactlyOnce {
		t.Run(test.name, func(t *testing.T) {
			trial := newTrial(t, place(t))
			if trial.place.Guarantee != sink.ExactlyOnce {
				t.Skip("the kind does not promise exactly once")
			}
			test.run(trial)
		})
	}
}

type test struct {
	name string
	run  func(*trial)
}

// A trial is one test at work on its place.
type trial struct {
	*testing.T
	place Place
	ctx   context.Context
}

func newTrial(t *testing.T, place Place) *trial {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return &trial{T: t, place: place, ctx: ctx}
}

// A hand writes to one partition through a sink of its own.
type hand struct {
	sink.Writer
	t         *trial
	partition string
	columns   []event.Column // nil when the sink asks for none
	order     sink.Order
	done      event.Ranges // what Open returned
}

// open takes partition over for pipeline, as a process of its own.
func (t *trial) open(pipeline, partition string) *hand {
	t.Helper()
	s := t.place.Sink(t.T, pipeline)
	w, done, err := s.Open(t.ctx, partition)
	if err != nil {
		t.Fatalf("opening %s for %s: %v", partition, pipeline, err)
	}
	traits := s.Traits()
	h := &hand{Writer: w, t: t, partition: partition, columns: traits.Columns, order: traits.Order, done: done}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("closing the writer: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("closing the sink: %v", err)
		}
	})
	return h
}

// write writes the events of [first, first+count) and fails the test if it can't.
func (h *hand) write(first, count uint64) {
	h.t.Helper()
	if err := h.Write(h.t.ctx, h.events(first, count)); err != nil {
		h.t.Fatalf("writing [%d,%d): %v", first, first+count, err)
	}
}
