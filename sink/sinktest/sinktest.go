// Package sinktest is the suite that every kind of sink passes. It tests the contract
// of package sink: the part for at-least-once sinks with every kind, the rest with
// kinds that deliver exactly once, and abilities with the kinds whose Traits have them.
//
// The suite writes events with an id and a name through sinks that the kind's test
// makes, and reads them back through the kind's test.
package sinktest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/sink"
)

// A Place is where sinks write during one test, such as a fresh table.
type Place struct {
	Guarantee sink.Guarantee

	// Sink makes a sink of the named pipeline on the place, as one more process
	// would. The suite closes it. Its columns, if it wants any, are filled from
	// documents of the form {"id":1,"name":"event 1"}.
	Sink func(t *testing.T, pipeline string) sink.Sink

	// Rows returns all rows in the place: in the order that its readers see if the place
	// is Ordered, otherwise in any order.
	Rows func(t *testing.T) []Row

	// NoRows says that the kind keeps no rows, only which events are committed. Rows is not
	// called.
	NoRows bool

	// Ordered says that readers of the place see the order of commits, as those of a
	// file or a topic do. Rows must then follow the source.
	Ordered bool

	// RejectedDoc returns a document that the sink rejects for its content, at every
	// attempt. It is nil if the sink rejects no document.
	RejectedDoc func(id int64) string

	// NoVerify says that the kind's writers cannot tell whether the place still has
	// what they committed: Verify returns nil.
	NoVerify bool

	// Proxy puts a proxy between the server and the sinks that are made after it. It is
	// nil if the kind has no connections.
	Proxy func(t *testing.T) *Proxy

	// Snapshot remembers what the place holds; restore sets it back to that, as a
	// restored backup does. It is nil if no test can do that.
	Snapshot func(t *testing.T) (restore func())

	// RemoveNote makes a note of a unit of pipeline p disappear. It is nil if no test can do that.
	RemoveNote func(t *testing.T, unit string, number uint64)

	// Stall makes the next writes hang inside their transaction until release is
	// called; hanging returns when one does. It is nil if writes cannot be held.
	Stall func(t *testing.T) (hanging, release func())

	// Deadlock makes the next write of rows with the given ids, in that order, the
	// victim of a deadlock: another transaction writes the second. collide waits for
	// the write to hang at that row, and writes the first; end ends the other
	// transaction. It is nil if no other transaction can write to the place.
	Deadlock func(t *testing.T, ids []int64) (collide, end func())
}

// A Row is what a place holds of one event.
type Row struct {
	ID   int64
	Name string
}

// timeout ends a test that hangs. No test needs a fraction of it, on a busy machine either.
const timeout = 3 * time.Minute

// Run runs the suite. It asks for a new, empty place for each of its tests.
func Run(t *testing.T, place func(t *testing.T) Place) {
	run(t, place, true)
}

// RunVariant runs the suite for a kind after Run has run it with other settings. These change
// how the sink writes rows or how it connects. Unless tests are long, RunVariant leaves out what
// does not depend on that: leases, and units beyond the notes written with rows.
func RunVariant(t *testing.T, place func(t *testing.T) Place) {
	run(t, place, testsize.Long())
}

func run(t *testing.T, place func(t *testing.T) Place, whole bool) {
	each := func(tests []test, skip func(*testEnv) string) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				env := newTestEnv(t, place(t))
				if reason := skip(env); reason != "" {
					t.Skip(reason)
				}
				test.run(env)
			})
		}
	}
	exactlyOnce, unitTests := ranges, notes
	if whole {
		exactlyOnce, unitTests = slices.Concat(ranges, leases), slices.Concat(notes, units)
	}
	each(writes, func(*testEnv) string { return "" })
	each(exactlyOnce, func(env *testEnv) string {
		if env.place.Guarantee != sink.ExactlyOnce {
			return "the kind does not promise exactly once"
		}
		return ""
	})
	each(unitTests, func(env *testEnv) string {
		if !env.keepsUnits() {
			return "the kind keeps no units"
		}
		return ""
	})
}

var (
	// writes are for every kind.
	writes = []test{
		{"RowsArrive", rowsArrive},
		{"ManyRowsArrive", manyRowsArrive},
		{"OutputWithoutRows", outputWithoutRows},
		{"ConcurrentWrites", concurrentWrites},
		{"ConcurrentPartitions", concurrentPartitions},
		{"LanesKeepOrder", lanesKeepOrder},
		{"CallerReusesItsMemory", callerReusesItsMemory},
		{"ClosedWriter", closedWriter},
		{"CancelledWrite", cancelledWrite},
		{"RejectedRowsAreNamed", rejectedRowsAreNamed},
		{"CheckFindsNothing", checkFindsNothing},
	}
	// ranges are for kinds that deliver exactly once.
	ranges = []test{
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
		{"ConflictIsRetried", conflictIsRetried},
		{"ManyCommitsComeBack", manyCommitsComeBack},
		{"CompactionSparesNeighbours", compactionSparesNeighbours},
		{"PositionsOfAllSizes", positionsOfAllSizes},
		{"OverlappingLanes", overlappingLanes},
		{"LostConnections", lostConnections},
		{"LostCompactions", lostCompactions},
		{"CommitArrivesLate", commitArrivesLate},
		{"LostConnectionOfFencedWriter", lostConnectionOfFencedWriter},
		{"SetBack", setBack},
		{"PositionsAreShown", positionsAreShown},
		{"PositionIsSet", positionIsSet},
		{"SetPositionKeepsFingerprints", setPositionKeepsFingerprints},
		{"SetPositionFences", setPositionFences},
		{"VerifyFindsTheOwner", verifyFindsTheOwner},
	}
	// leases are for the same kinds, and do not depend on how rows are written.
	leases = []test{
		{"LeaseIsExclusive", leaseIsExclusive},
		{"LeaseIsReleased", leaseIsReleased},
		{"LeaseExpires", leaseExpires},
		{"LeaseIsRenewed", leaseIsRenewed},
		{"LeaseIsContended", leaseIsContended},
		{"LeasesDoNotMix", leasesDoNotMix},
		{"ThousandsOfLeases", thousandsOfLeases},
		{"ThousandsAreContended", thousandsAreContended},
		{"LeaseLeavesRangesAlone", leaseLeavesRangesAlone},
		{"HeartbeatCounts", heartbeatCounts},
		{"HeartbeatsAtOnce", heartbeatsAtOnce},
	}
	// notes are for kinds that keep units: notes written with rows.
	notes = []test{
		{"NotesComeBack", notesComeBack},
		{"NoteIsCommittedWithItsRange", noteIsCommittedWithItsRange},
		{"NoteOfCommittedRange", noteOfCommittedRange},
		{"NoteOfPartlyCommittedRange", noteOfPartlyCommittedRange},
		{"NoteOfEmptyRange", noteOfEmptyRange},
		{"NoteWithRejectedRows", noteWithRejectedRows},
		{"CancelledNote", cancelledNote},
		{"PartitionTakeoverFencesNotes", partitionTakeoverFencesNotes},
		{"LostNotes", lostNotes},
		{"NoteArrivesLate", noteArrivesLate},
		{"UnitModel", unitModel},
	}
	// units are for the same kinds, and do not depend on how rows are written.
	units = []test{
		{"LargeNotesComeBack", largeNotesComeBack},
		{"NoteOutOfSequence", noteOutOfSequence},
		{"UnitTakeoverFences", unitTakeoverFences},
		{"UnitTakeoverInsideTransaction", unitTakeoverInsideTransaction},
		{"UnitTakeoversRace", unitTakeoversRace},
		{"UnitsAreWrittenAtOnce", unitsAreWrittenAtOnce},
		{"PartitionsShareUnit", partitionsShareUnit},
		{"TrimKeepsLastNote", trimKeepsLastNote},
		{"TrimDuringNotes", trimDuringNotes},
		{"MissingNote", missingNote},
		{"UnitsAreShown", unitsAreShown},
		{"OthersReadNotes", othersReadNotes},
		{"TrimOvertakesReader", trimOvertakesReader},
		{"UnitIsSetBack", unitIsSetBack},
	}
)

type test struct {
	name string
	run  func(*testEnv)
}

// A testEnv is one running test and its place.
type testEnv struct {
	*testing.T
	place Place
	ctx   context.Context
}

func newTestEnv(t *testing.T, place Place) *testEnv {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return &testEnv{T: t, place: place, ctx: ctx}
}

// A testWriter writes to one partition through a sink of its own.
type testWriter struct {
	sink.Writer
	t         *testEnv
	partition string
	columns   []event.Column // nil if the sink wants none
	order     sink.Order
	committed event.Ranges // what Open returned
}

// openWriter takes partition over for pipeline, as a process of its own.
func (t *testEnv) openWriter(pipeline, partition string) *testWriter {
	t.Helper()
	s := t.place.Sink(t.T, pipeline)
	w, done, err := s.Open(t.ctx, partition)
	if err != nil {
		t.Fatalf("opening %s for %s: %v", partition, pipeline, err)
	}
	traits := s.Traits()
	h := &testWriter{Writer: w, t: t, partition: partition, columns: traits.Columns, order: traits.Order, committed: done}
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

// write writes the events of [first, first+count) and fails the test if that fails.
func (h *testWriter) write(first, count uint64) {
	h.t.Helper()
	if err := h.Write(h.t.ctx, h.makeEvents(first, count)); err != nil {
		h.t.Fatalf("writing [%d,%d): %v", first, first+count, err)
	}
}
