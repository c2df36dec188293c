package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// ranges returns what perigee_ranges has, a row as first|events|bytes of prints.
func (g *place) ranges() []string {
	return g.text("SELECT first, events, length(prints) FROM perigee_ranges ORDER BY owner, first")
}

// commit commits ranges of size events each, with fingerprints if need be.
func (g *place) commit(w hand, from, to, size uint64, printed bool) {
	g.t.Helper()
	for first := from; first < to; first += size {
		out := &event.Output{Range: event.Range{First: first, Count: size}, Columns: sinktest.NewOutputBuilder(w.sink.columns).Output(0).Columns}
		for p := first; printed && p < out.Range.End(); p++ {
			out.Range.Prints = append(out.Range.Prints, uint32(p)*7)
		}
		g.write(w, out)
		clear(out.Range.Prints)
	}
}

func TestRangesAreFolded(t *testing.T) {
	const every, large = 256, 256 // as package positions has them
	g := newPlace(t, named(20)...)
	w := g.open()
	g.commit(w, 0, every, 1, false)
	if got := g.ranges(); !slices.Equal(got, []string{"0|256|NULL"}) {
		t.Fatalf("after %d commits without fingerprints: %v", every, got)
	}
	end := uint64(every * large)
	g.commit(w, every, end, large, true)
	if got := g.ranges(); len(got) != every {
		t.Fatalf("after as many with fresh fingerprints: %d rows", len(got))
	}
	g.text(fmt.Sprintf("UPDATE perigee_ranges SET committed = committed - interval '3 hours' WHERE first < 3 * %d", large))
	w = g.open()
	g.commit(w, end, end+every, 1, true)
	got := g.ranges()
	if len(got) != 1+every-3+1 || !slices.Equal(got[:2], []string{"0|768|NULL", "768|256|1024"}) || got[len(got)-1] != fmt.Sprintf("%d|256|1024", end) {
		t.Fatalf("when some had aged and others were small: %d rows, %v", len(got), got)
	}
	done := g.open().done
	if !done.Covers(0, end+every) {
		t.Fatalf("a new owner is told %v", done)
	}
	for i, print := range done[1].Prints {
		if want := (done[1].First + uint64(i)) * 7; print != uint32(want) {
			t.Fatalf("position %d came back with %d, want %d", done[1].First+uint64(i), print, want)
		}
	}
}

// TestFencedWriterFoldsNothing lets an old owner fold what its successor has
// folded otherwise: it must not delete what it does not know.
func TestFencedWriterFoldsNothing(t *testing.T) {
	g := newPlace(t, named(20)...)
	s := g.sink("p")
	defer s.Close()
	g.commit(g.open(), 0, 40, 10, true)
	old, fresh := claim(t, s), claim(t, s)
	if err := fresh.Compact(t.Context(), event.Range{First: 0, Count: 20}); err != nil {
		t.Fatal(err)
	}
	before := g.ranges()
	if err := old.Compact(t.Context(), event.Range{First: 10, Count: 30}); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a fenced writer folded: %v", err)
	}
	if after := g.ranges(); !slices.Equal(before, after) || len(after) != 3 {
		t.Errorf("perigee_ranges was %v and is %v", before, after)
	}
}

// TestPositionsBeyondSigned keeps positions that no signed integer holds.
func TestPositionsBeyondSigned(t *testing.T) {
	g := newPlace(t, named(20)...)
	w := g.open()
	const far = 1<<64 - 100
	g.commit(w, far, far+90, 10, true)
	g.commit(w, 5, 10, 5, false)
	if done := g.open().done; done.String() != fmt.Sprintf("[5,10) [%d,%d)", uint64(far), uint64(far+90)) {
		t.Errorf("a new owner is told %v", done)
	}
}
