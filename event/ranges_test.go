package event

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is a set of positions with the fingerprint of each; 0 means none.
type model map[uint64]uint32

func (m model) add(r Range) {
	for i := range r.Count {
		if _, ok := m[r.First+i]; ok {
			continue
		}
		m[r.First+i] = 0
		if len(r.Fingerprints) > 0 {
			m[r.First+i] = r.Fingerprints[i]
		}
	}
}

// positions is the inverse of the model: what a set of ranges says.
func positions(rs []Range) model {
	m := make(model)
	for _, r := range rs {
		m.add(r)
	}
	return m
}

const space = 64 // of positions that the model checks

func drawRange(t *rapid.T) Range {
	first := rapid.Uint64Range(0, space-1).Draw(t, "first")
	r := Range{First: first, Count: rapid.Uint64Range(0, min(12, space-first)).Draw(t, "count")}
	if rapid.Bool().Draw(t, "fingerprints") {
		r.Fingerprints = rapid.SliceOfN(rapid.Uint32Range(1, 9), int(r.Count), int(r.Count)).Draw(t, "values")
	}
	return r
}

func drawRanges(t *rapid.T) (Ranges, model) {
	var rs Ranges
	m := make(model)
	for range rapid.IntRange(0, 20).Draw(t, "ranges") {
		r := drawRange(t)
		m.add(r)
		r.Fingerprints = slices.Clone(r.Fingerprints)
		rs.Add(r)
	}
	return rs, m
}

func TestRangesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs, m := drawRanges(t)
		if diff := cmp.Diff(m, positions(rs)); diff != "" {
			t.Fatalf("%v (-want +got):\n%s", rs, diff)
		}
		checkShape(t, rs)
		next := uint64(space)
		for p := uint64(space); p > 0; p-- {
			_, in := m[p-1]
			if !in {
				next = p - 1
			}
			if got := rs.Has(p - 1); got != in {
				t.Fatalf("%v: Has(%d) = %v", rs, p-1, got)
			}
			if got := rs.Next(p - 1); got != next {
				t.Fatalf("%v: Next(%d) = %d, want %d", rs, p-1, got, next)
			}
			if got := rs.Covers(p-1, next); !got {
				t.Fatalf("%v: does not cover [%d,%d)", rs, p-1, next)
			}
			if rs.Covers(p-1, next+1) {
				t.Fatalf("%v: covers [%d,%d)", rs, p-1, next+1)
			}
		}
	})
}

// checkShape holds a set to what its type promises.
func checkShape(t *rapid.T, rs Ranges) {
	for i, r := range rs {
		if r.Count == 0 {
			t.Fatalf("%v has an empty range", rs)
		}
		if n := uint64(len(r.Fingerprints)); n != 0 && n != r.Count {
			t.Fatalf("%v has %d fingerprints", r, n)
		}
		if i == 0 {
			continue
		}
		last := rs[i-1]
		if last.End() > r.First {
			t.Fatalf("%v overlaps or is not sorted", rs)
		}
		if last.End() == r.First && (len(last.Fingerprints) > 0) == (len(r.Fingerprints) > 0) {
			t.Fatalf("%v has neighbours that are not joined", rs)
		}
	}
}

func TestRangesMissing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs, m := drawRanges(t)
		r := drawRange(t)
		want := make(model)
		for p, fingerprint := range positions([]Range{r}) {
			if _, in := m[p]; !in {
				want[p] = fingerprint
			}
		}
		got := rs.Missing(r)
		if diff := cmp.Diff(want, positions(got)); diff != "" {
			t.Fatalf("%v misses of %v (-want +got):\n%s", rs, r, diff)
		}
		for i, gap := range got {
			if gap.Count == 0 || i > 0 && got[i-1].End() >= gap.First {
				t.Fatalf("gaps %v: empty, or not in order", got)
			}
		}
	})
}

func TestRangesIntersect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, ma := drawRanges(t)
		b, mb := drawRanges(t)
		want := make(model)
		for p, fingerprint := range ma {
			if _, in := mb[p]; in {
				want[p] = fingerprint
			}
		}
		both := a.Intersect(b)
		if diff := cmp.Diff(want, positions(both)); diff != "" {
			t.Fatalf("%v and %v (-want +got):\n%s", a, b, diff)
		}
		checkShape(t, both)
		if diff := cmp.Diff(ma, positions(a)); diff != "" {
			t.Fatalf("Intersect changed its receiver (-want +got):\n%s", diff)
		}
	})
}

func TestRangeHeadAndTail(t *testing.T) {
	r := Range{First: 10, Count: 3, Fingerprints: []uint32{7, 8, 9}}
	if diff := cmp.Diff(Range{First: 12, Count: 1, Fingerprints: []uint32{9}}, r.Tail(2)); diff != "" {
		t.Error(diff)
	}
	head := r.Head(2)
	if diff := cmp.Diff(Range{First: 10, Count: 2, Fingerprints: []uint32{7, 8}}, head); diff != "" {
		t.Error(diff)
	}
	if _ = append(head.Fingerprints, 1); r.Fingerprints[2] != 9 {
		t.Error("appending to a head changes the range it came from")
	}
}

func TestRangesString(t *testing.T) {
	var rs Ranges
	rs.Add(Range{First: 5, Count: 2})
	rs.Add(Range{First: 0, Count: 3})
	if got, want := rs.String(), "[0,3) [5,7)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
