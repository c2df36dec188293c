package event

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// A Range names consecutive events of a partition by position. A sink commits
// the range in the same transaction as the rows made from it, and so knows after
// a crash which events it already has.
type Range struct {
	First, Count uint64
	// Fingerprints holds one fingerprint per event. It is empty if the source's
	// positions always mean the same events. Sinks store and return it without
	// interpreting it; the source and the pipeline compare it.
	Fingerprints []uint32 `json:"Prints"` // name in files of replays and between engines
}

// End is the position just past the range.
func (r Range) End() uint64 { return r.First + r.Count }

// Tail returns the range without its first n positions.
func (r Range) Tail(n uint64) Range {
	t := Range{First: r.First + n, Count: r.Count - n}
	if len(r.Fingerprints) > 0 {
		t.Fingerprints = r.Fingerprints[n:]
	}
	return t
}

// Head returns the first n positions of the range.
func (r Range) Head(n uint64) Range {
	h := Range{First: r.First, Count: n}
	if len(r.Fingerprints) > 0 {
		h.Fingerprints = r.Fingerprints[:n:n]
	}
	return h
}

func (r Range) String() string { return fmt.Sprintf("[%d,%d)", r.First, r.End()) }

// Ranges is a set of positions, held as sorted, disjoint, non-empty ranges.
// Adjacent ranges are joined if both or neither carry fingerprints.
type Ranges []Range

// Add puts r into the set and takes over its fingerprints: the caller must not
// append to them. Positions already in the set keep their fingerprints.
func (rs *Ranges) Add(r Range) {
	for _, gap := range rs.Missing(r) {
		i := rs.search(gap.First)
		*rs = slices.Insert(*rs, i, gap)
		rs.join(i)
	}
}

// search returns the index of the first range that ends past p.
func (rs Ranges) search(p uint64) int {
	return sort.Search(len(rs), func(i int) bool { return rs[i].End() > p })
}

// Has reports whether position p is in the set.
func (rs Ranges) Has(p uint64) bool {
	i := rs.search(p)
	return i < len(rs) && rs[i].First <= p
}

// Next returns the first position at or after p that is not in the set.
func (rs Ranges) Next(p uint64) uint64 {
	for i := rs.search(p); i < len(rs) && rs[i].First <= p; i++ {
		p = rs[i].End()
	}
	return p
}

// Covers reports whether every position of [first, end) is in the set.
func (rs Ranges) Covers(first, end uint64) bool { return rs.Next(first) >= end }

// Intersect returns the positions in both sets, with the fingerprints of rs.
func (rs Ranges) Intersect(other Ranges) Ranges {
	var both Ranges
	for _, a := range rs {
		for _, b := range other {
			first, end := max(a.First, b.First), min(a.End(), b.End())
			if first < end {
				both.Add(a.Tail(first - a.First).Head(end - first))
			}
		}
	}
	return both
}

func (rs Ranges) String() string {
	var s strings.Builder
	for i, r := range rs {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(r.String())
	}
	return s.String()
}

// Missing returns the parts of r that are not in the set, in ascending order.
func (rs Ranges) Missing(r Range) []Range {
	var gaps []Range
	for _, have := range rs[rs.search(r.First):] {
		if have.First >= r.End() {
			break
		}
		if have.First > r.First {
			gaps = append(gaps, r.Head(have.First-r.First))
		}
		if have.End() >= r.End() {
			return gaps
		}
		r = r.Tail(have.End() - r.First)
	}
	if r.Count > 0 {
		gaps = append(gaps, r)
	}
	return gaps
}

// join merges the range at i with its adjacent neighbours.
func (rs *Ranges) join(i int) {
	s := *rs
	if i+1 < len(s) && s[i].touches(s[i+1]) {
		s[i] = s[i].plus(s[i+1])
		s = slices.Delete(s, i+1, i+2)
	}
	if i > 0 && s[i-1].touches(s[i]) {
		s[i-1] = s[i-1].plus(s[i])
		s = slices.Delete(s, i, i+1)
	}
	*rs = s
}

func (r Range) touches(next Range) bool {
	return r.End() == next.First && (len(r.Fingerprints) > 0) == (len(next.Fingerprints) > 0)
}

func (r Range) plus(next Range) Range {
	return Range{First: r.First, Count: r.Count + next.Count, Fingerprints: append(r.Fingerprints, next.Fingerprints...)}
}
