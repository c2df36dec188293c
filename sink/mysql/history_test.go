package mysql

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

func TestFolds(t *testing.T) {
	now := time.Now()
	// A row is written first-end, with p for fingerprints and o for old.
	tests := []struct {
		name string
		rows []string
		want []string
	}{
		{"nothing", nil, nil},
		{"one without fingerprints", []string{"0-5"}, nil},
		{"one old", []string{"0-5po"}, []string{"[0,5)"}},
		{"one small", []string{"0-5p"}, nil},
		{"small ones", []string{"0-5p", "5-9p", "10-12p"}, []string{"[0,9)p"}},
		{"small ones that get large", []string{"0-255p", "255-300p", "300-600p"}, []string{"[0,300)p"}},
		{"large ones", []string{"0-256p", "256-512p"}, nil},
		{"two without fingerprints", []string{"0-5", "5-9"}, []string{"[0,9)"}},
		{"a gap", []string{"0-5", "5-9", "10-12", "12-13"}, []string{"[0,9)", "[10,13)"}},
		{"old ones first", []string{"0-5", "5-9po", "9-12po", "12-13p"}, []string{"[0,12)"}},
		{"old after new", []string{"0-5p", "5-9po", "9-12po", "12-13p", "13-14"}, []string{"[5,12)"}},
		{"old, small, none", []string{"0-5po", "5-9po", "9-12p", "12-13p", "13-14", "14-16"}, []string{"[0,9)", "[9,13)p", "[13,16)"}},
		{"too many events", []string{"0-5p", "5-9p", "9-16000000p", "16000000-16000009p"}, []string{"[0,9)"}},
		{"exactly as many events", []string{"0-5p", "5-16000005p"}, []string{"[0,5)"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var h history
			for _, row := range test.rows {
				var first, end uint64
				var flags string
				_, _ = fmt.Sscanf(row, "%d-%d%s", &first, &end, &flags)
				r := event.Range{First: first, Count: end - first}
				at := now
				if slices.Contains([]byte(flags), 'p') {
					r.Prints = make([]uint32, min(r.Count, 1000))
				}
				if slices.Contains([]byte(flags), 'o') {
					at = now.Add(-printAge)
				}
				h.add(r, at)
			}
			var got []string
			for _, r := range h.folds(now) {
				text := r.String()
				if len(r.Prints) == int(r.Count) {
					text += "p"
				}
				got = append(got, text)
				h.fold(r, now)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("folded %v, want %v", got, test.want)
			}
			if again := h.folds(now); len(again) != 0 {
				t.Errorf("folded %v once more", again)
			}
		})
	}
}

// ranges returns what perigee_ranges has, a row as first|events|bytes of prints.
func (g *target) ranges() []string {
	return g.text("SELECT first, events, LENGTH(prints) FROM perigee_ranges ORDER BY owner, first")
}

// commit commits ranges of size events each, with fingerprints if need be.
func (g *target) commit(w *writer, from, to, size uint64, printed bool) {
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
	const large = smallRange
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
	for _, first := range []uint64{10, 20, 30} {
		if err := old.Write(t.Context(), span(old, first, 10)); err != nil {
			t.Fatal(err)
		}
	}
	fresh := g.open()
	if err := fresh.Write(t.Context(), span(fresh, 0, 10)); err != nil {
		t.Fatal(err)
	}
	conn, err := fresh.sink.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := fresh.foldRange(t.Context(), conn, event.Range{First: 0, Count: 20}); err != nil {
		t.Fatal(err)
	}
	before := g.ranges()
	if err := old.foldRange(t.Context(), conn, event.Range{First: 10, Count: 30}); err == nil {
		t.Error("a fenced writer folded")
	}
	if after := g.ranges(); !slices.Equal(before, after) || len(after) != 3 {
		t.Errorf("the ledger was %v and is %v", before, after)
	}
}

// TestFoldWithLostReply folds again, otherwise, what a fold has done whose reply
// was lost.
func TestFoldWithLostReply(t *testing.T) {
	g := newTarget(t, named(20)...)
	p := newProxy(t, g.config.Address)
	g.config.Address = p.Addr().String()
	w := g.open()
	g.commit(w, 0, 30, 10, true)
	fold := func() {
		conn, err := w.sink.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		w.fold(t.Context(), conn)
	}
	p.set(dropReply)
	fold()
	g.commit(w, 50, 60, 10, true)
	for i := range w.past {
		if w.past[i].first < 20 {
			w.past[i].committed = time.Now().Add(-2 * printAge)
		}
	}
	fold()
	s := g.sink("p")
	defer s.Close()
	_, done, err := s.Open(t.Context(), "a")
	if err != nil || !done.Covers(0, 30) {
		t.Fatalf("a new owner is told %v, %v; want [0,30) [50,60)", done, err)
	}
}
