package positions

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

var (
	errLost   = errors.New("connection lost")
	errFailed = errors.New("the server has rolled back")
)

// A page is a store in memory, whose next commits end as next says, and whose next
// compaction as compaction says.
type page struct {
	entries    []Entry
	written    []int // rows
	compacted  int
	next       []ending
	compaction ending
	renewed    int
	fenced     bool
}

type ending int

const (
	committed ending = iota
	lostBefore
	lostAfter
	failed // and the server says so
)

func (p *page) Renew(context.Context) ([]Entry, error) {
	p.renewed++
	if p.fenced {
		return nil, sink.ErrFenced
	}
	return slices.Clone(p.entries), nil
}

func (p *page) Commit(_ context.Context, rows *Rows, ranges []event.Range) error {
	end := committed
	if len(p.next) > 0 {
		end, p.next = p.next[0], p.next[1:]
	}
	if end != lostBefore {
		p.written = append(p.written, len(rows.Index))
		for _, r := range ranges {
			r.Fingerprints = slices.Clone(r.Fingerprints)
			p.entries = append(p.entries, Entry{Range: r})
		}
	}
	if end != committed {
		return errLost
	}
	return nil
}

func (p *page) Compact(_ context.Context, r event.Range) error {
	end := p.compaction
	p.compaction = committed
	p.compacted++
	if end == committed || end == lostAfter {
		p.entries = slices.DeleteFunc(p.entries, func(e Entry) bool { return e.Range.First >= r.First && e.Range.End() <= r.End() })
		p.entries = append(p.entries, Entry{Range: r})
	}
	switch end {
	case lostBefore, lostAfter:
		return errLost
	case failed:
		return errFailed
	}
	return nil
}

func (p *page) IsCommitted(_ context.Context, r event.Range) (bool, error) {
	if p.fenced {
		return false, sink.ErrFenced
	}
	return slices.ContainsFunc(p.entries, func(e Entry) bool { return e.Range.First <= r.First && r.End() <= e.Range.End() }), nil
}

func (p *page) OutcomeUnknown(err error) bool { return errors.Is(err, errLost) }

func span(first, count uint64) *event.Output {
	out := &event.Output{Range: event.Range{First: first, Count: count}, Columns: &event.Columns{}}
	for i := range count {
		out.From, out.Ends = append(out.From, uint32(i)), append(out.Ends, 0)
	}
	return out
}

func TestLostCommitIsFoundOut(t *testing.T) {
	p := &page{next: []ending{committed, lostAfter, lostBefore}}
	w, _ := NewWriter(p, nil, slog.New(slog.DiscardHandler))
	for first := uint64(0); first < 20; first += 10 {
		if err := w.Write(t.Context(), span(first, 10)); err != nil {
			t.Fatalf("writing what was committed: %v", err)
		}
	}
	if err := w.Write(t.Context(), span(15, 20)); !errors.Is(err, errLost) {
		t.Fatalf("writing what was not committed: %v", err)
	}
	if err := w.Write(t.Context(), span(15, 20)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.written, []int{10, 10, 15}) || p.renewed != 2 {
		t.Errorf("wrote %v rows, renewed %d times", p.written, p.renewed)
	}
}

func TestFencedWhileLost(t *testing.T) {
	p := &page{next: []ending{lostBefore}, fenced: true}
	w, _ := NewWriter(p, nil, slog.New(slog.DiscardHandler))
	for range 2 {
		if err := w.Write(t.Context(), span(0, 10)); !errors.Is(err, sink.ErrFenced) {
			t.Errorf("writing returned %v", err)
		}
	}
	if p.renewed != 1 {
		t.Errorf("renewed %d times after the end", p.renewed)
	}
}

// TestDatabaseIsSetBack restores the database to an older state while the writer runs.
func TestDatabaseIsSetBack(t *testing.T) {
	p := &page{}
	w, _ := NewWriter(p, nil, slog.New(slog.DiscardHandler))
	for first := uint64(0); first < 30; first += 10 {
		if err := w.Write(t.Context(), span(first, 10)); err != nil {
			t.Fatal(err)
		}
	}
	p.entries = p.entries[:1]
	p.next = []ending{lostBefore}
	for range 2 {
		err := w.Write(t.Context(), span(30, 10))
		permanent, ok := errors.AsType[*event.PermanentError](err)
		if !ok || !strings.Contains(err.Error(), "[10,30)") || !strings.Contains(permanent.Hint, "restart the pipeline") {
			t.Fatalf("writing returned %v", err)
		}
	}
	if len(p.written) != 3 {
		t.Errorf("the table has %v", p.written)
	}
}

// TestVerify sets the database back while nothing is written.
func TestVerify(t *testing.T) {
	entries := []Entry{{Range: event.Range{First: 20, Count: 10}}, {Range: event.Range{First: 5, Count: 10}}}
	p := &page{entries: entries}
	w, _ := NewWriter(p, entries, slog.New(slog.DiscardHandler))
	intact := func(when string) {
		t.Helper()
		if err := w.Verify(t.Context()); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	intact("as it was found")
	for _, first := range []uint64{30, 15} { // lanes do not end in order
		if err := w.Write(t.Context(), span(first, 5)); err != nil {
			t.Fatal(err)
		}
		intact("after a write")
	}
	if err := p.Compact(t.Context(), event.Range{First: 5, Count: 30}); err != nil {
		t.Fatal(err)
	}
	intact("after a compaction")
	p.entries = append(slices.Clone(entries), Entry{Range: event.Range{First: 30, Count: 5}})
	for range 2 {
		err := w.Verify(t.Context())
		if _, ok := errors.AsType[*event.PermanentError](err); !ok || !strings.Contains(err.Error(), "[15,20)") {
			t.Fatalf("a database that was set back: %v", err)
		}
	}
	if err := w.Write(t.Context(), span(40, 5)); err == nil || !strings.Contains(err.Error(), "[15,20)") {
		t.Errorf("writing after it: %v", err)
	}
}

func TestVerifyFenced(t *testing.T) {
	p := &page{fenced: true}
	w, _ := NewWriter(p, nil, slog.New(slog.DiscardHandler))
	for range 2 {
		if err := w.Verify(t.Context()); !errors.Is(err, sink.ErrFenced) {
			t.Errorf("a writer that was fenced: %v", err)
		}
	}
}

func TestWriterCompacts(t *testing.T) {
	p := &page{}
	w, _ := NewWriter(p, nil, slog.New(slog.DiscardHandler))
	for i := range uint64(compactEvery * 2) {
		if err := w.Write(t.Context(), span(i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if p.compacted != 2 || len(p.entries) != 1 || p.entries[0].Range.Count != 2*compactEvery {
		t.Errorf("compacted %d times, to %v", p.compacted, p.entries)
	}
}

// TestLostCompactionIsFoundOut loses the connection at a compaction, of whose write the
// caller is told that it is durable. The next write renews the claim, which keeps a
// compaction that is still in flight from undoing later ones.
func TestLostCompactionIsFoundOut(t *testing.T) {
	for end, renewed := range map[ending]int{lostBefore: 1, lostAfter: 1, failed: 0} {
		p := &page{}
		w, _ := NewWriter(p, nil, slog.New(slog.DiscardHandler))
		for i := range uint64(compactEvery * 2) {
			if i == compactEvery-1 {
				p.compaction = end
			}
			if err := w.Write(t.Context(), span(i, 1)); err != nil {
				t.Fatalf("ending %d: writing at %d: %v", end, i, err)
			}
			want := 0
			if i >= compactEvery {
				want = renewed
			}
			if p.renewed != want {
				t.Fatalf("ending %d: renewed %d times after the write at %d, want %d", end, p.renewed, i, want)
			}
			if err := w.Verify(t.Context()); err != nil {
				t.Fatalf("ending %d: verifying after the write at %d: %v", end, i, err)
			}
		}
		if p.compacted != 2 || len(p.entries) != 1 || p.entries[0].Range.String() != "[0,512)" {
			t.Errorf("ending %d: compacted %d times, to %v", end, p.compacted, p.entries)
		}
		if !slices.Equal(p.written, slices.Repeat([]int{1}, compactEvery*2)) {
			t.Errorf("ending %d: wrote %v rows", end, p.written)
		}
	}
}

func TestEntriesComeBack(t *testing.T) {
	old := Entry{Range: event.Range{First: 5, Count: 2, Fingerprints: []uint32{7, 8}}, Age: fingerprintAge + time.Second}
	w, done := NewWriter(&page{}, []Entry{old}, slog.New(slog.DiscardHandler))
	if len(done) != 1 || done[0].String() != "[5,7)" || !slices.Equal(done[0].Fingerprints, []uint32{7, 8}) {
		t.Errorf("done is %v", done)
	}
	if merged := w.history.compactions(time.Now()); len(merged) != 1 || len(merged[0].Fingerprints) != 0 {
		t.Errorf("an old entry becomes %v", merged)
	}
}

func TestFingerprints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fingerprints := rapid.SliceOf(rapid.Uint32()).Draw(t, "fingerprints")
		kept, err := hex.DecodeString(string(AppendHex(nil, fingerprints)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeFingerprints(event.Range{Count: uint64(len(fingerprints))}, kept)
		if err != nil || !slices.Equal(got, fingerprints) {
			t.Fatalf("%v became %v, %v", fingerprints, got, err)
		}
	})
	if _, err := DecodeFingerprints(event.Range{Count: 2}, make([]byte, 7)); err == nil {
		t.Error("half a fingerprint was taken")
	}
}

// discard is a store that commits everything and keeps nothing.
type discard struct{ page }

func (*discard) Commit(context.Context, *Rows, []event.Range) error { return nil }

// TestAllocations bounds what a commit costs besides the store.
func TestAllocations(t *testing.T) {
	w, _ := NewWriter(&discard{}, nil, slog.New(slog.DiscardHandler))
	out := span(0, 100)
	n := testing.AllocsPerRun(100, func() {
		if err := w.Write(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		out.Range.First += out.Range.Count
	})
	if n > 2 { // those of a reservation
		t.Errorf("%.0f allocations for a commit", n)
	}
}
