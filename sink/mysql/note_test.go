package mysql

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// TestNoteLargerThanAPacket sends notes in parts, beside ranges that leave little room or none in
// the packet of the commit. Bytes that are escaped are sent twice as long.
func TestNoteLargerThanAPacket(t *testing.T) {
	g := newTarget(t, named(20)...)
	g.exec("SET GLOBAL max_allowed_packet = 64 << 10")
	defer g.exec("SET GLOBAL max_allowed_packet = DEFAULT")
	s := g.sink("p")
	defer s.Close()
	unit, err := s.store.OpenUnit(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	opened, _, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	w := opened.(writer)
	if w.plan.packet != 64<<10 {
		t.Fatalf("max_allowed_packet is %d", w.plan.packet)
	}
	first, number := uint64(0), uint64(0)
	for _, test := range []struct {
		events uint64
		size   int
		fill   byte
	}{
		{1, 100, 0}, {1, 31_000, 0}, {1, 32_000, '\''}, {1, 400_000, '\\'}, {7000, 10, 'x'}, {7000, 40_000, 0}, {7850, 3_000, 0}, {7850, 40_000, 'x'}, {3000, 100_000, 0xff},
	} {
		number++
		note := &sink.Note{Number: number, Sum: math.MaxUint64 - number, Data: bytes.Repeat([]byte{test.fill}, test.size)}
		r := newRows(w)
		r.out.Range = event.Range{First: first, Count: test.events, Fingerprints: make([]uint32, test.events)}
		if err := w.WriteNote(t.Context(), r.out, unit, note); err != nil {
			t.Fatalf("%d events and %d bytes: %v", test.events, test.size, err)
		}
		first += test.events
		var got *sink.Note
		if err := unit.Notes(t.Context(), number, func(n *sink.Note) error { got = n; return nil }); err != nil {
			t.Fatal(err)
		}
		if got == nil || got.Sum != note.Sum || !bytes.Equal(got.Data, note.Data) {
			t.Errorf("%d events and %d bytes of %q: the note came back otherwise", test.events, test.size, test.fill)
		}
	}
	if parts := g.text("SELECT MAX(parts) > 12, MIN(parts) FROM perigee_notes"); parts[0] != "1|1" {
		t.Errorf("notes have more than 12 parts, and at least: %s", parts)
	}
	if got := g.text("SELECT SUM(events) FROM perigee_ranges"); got[0] != fmt.Sprint(first) {
		t.Errorf("%s events are committed, want %d", got[0], first)
	}
}
