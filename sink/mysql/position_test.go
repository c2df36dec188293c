package mysql

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// ranges returns what perigee_ranges has, a row as first|events|bytes of prints.
func (g *target) ranges() []string {
	return g.text("SELECT first, events, LENGTH(prints) FROM perigee_ranges ORDER BY owner, first")
}

// commit commits ranges of size events each, with fingerprints if need be.
func (g *target) commit(w writer, from, to, size uint64, printed bool) {
	g.t.Helper()
	for first := from; first < to; first += size {
		out := &event.Output{Range: event.Range{First: first, Count: size}, Columns: newRows(w).out.Columns}
		for p := first; printed && p < out.Range.End(); p++ {
			out.Range.Prints = append(out.Range.Prints, uint32(p)*7)
		}
		if err := w.Write(g.t.Context(), out); err != nil {
			g.t.Fatal(err)
		}
		clear(out.Range.Prints)
	}
}

func TestRangesAreFolded(t *testing.T) {
	const foldEvery, large = 256, 256 // as package ledger has them
	g := newTarget(t, named(20)...)
	w := g.open()
	g.commit(w, 0, foldEvery, 1, false)
	if got := g.ranges(); !slices.Equal(got, []string{"0|256|NULL"}) {
		t.Fatalf("after %d commits without fingerprints: %v", foldEvery, got)
	}
	end := uint64(foldEvery * large)
	g.commit(w, foldEvery, end, large, true)
	if got := g.ranges(); len(got) != foldEvery {
		t.Fatalf("after as many with fresh fingerprints: %d rows", len(got))
	}
	g.exec("UPDATE perigee_ranges SET committed = committed - INTERVAL 3 HOUR WHERE first < 3 * ?", large)
	w = g.open()
	g.commit(w, end, end+foldEvery, 1, true)
	want := []string{"0|768|NULL", "768|256|1024"}
	got := g.ranges()
	if len(got) != 1+foldEvery-3+1 || !slices.Equal(got[:2], want) || got[len(got)-1] != fmt.Sprintf("%d|256|1024", end) {
		t.Fatalf("when some had aged and others were small: %d rows, %v", len(got), got)
	}
	s := g.sink("p")
	defer s.Close()
	_, done, err := s.Open(t.Context(), "a")
	if err != nil || !done.Covers(0, end+foldEvery) {
		t.Fatalf("a new owner is told %v, %v", done, err)
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
	g := newTarget(t, named(20)...)
	old := g.open()
	g.commit(old, 0, 40, 10, true)
	fresh := g.open()
	if err := fresh.Compact(t.Context(), event.Range{First: 0, Count: 20}); err != nil {
		t.Fatal(err)
	}
	before := g.ranges()
	if err := old.Compact(t.Context(), event.Range{First: 10, Count: 30}); err == nil {
		t.Error("a fenced writer folded")
	}
	if after := g.ranges(); !slices.Equal(before, after) || len(after) != 3 {
		t.Errorf("the ledger was %v and is %v", before, after)
	}
}
