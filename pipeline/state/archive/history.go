package archive

import (
	"cmp"
	"context"
	"slices"
)

// A History is what the archive had of a unit when it was listed. It may have notes of several
// histories of the unit, and the same note in several segments. It is used by one goroutine at a time.
type History struct {
	Segments  []SegmentName
	Snapshots []SnapshotName

	unit *Unit
	ends map[Point][]SegmentName
	sums map[string]map[uint64]uint64 // of the notes of segments that were read, by name and number
}

func (h *History) add(s SegmentName) {
	h.Segments = append(h.Segments, s)
	h.ends[s.End] = append(h.ends[s.End], s)
}

// Ends returns the segments that end with a note.
func (h *History) Ends(p Point) []SegmentName { return h.ends[p] }

// A Part is the notes of a segment up to a number, as a part of a chain.
type Part struct {
	SegmentName
	Last uint64
}

// A link is a part that a chain may have. It leads to next, and the last one to the end of the chain.
type link struct {
	Part
	next *link
}

// A Chain is the segments that lead to a note, as far back as they follow one another.
type Chain struct {
	end     Point
	history *History
	links   []*link // those with the last notes first
}

// ChainTo follows the segments back from a note. Their names connect them. Where no segment ends with
// the note, because the home was set back to it, the ones that contain its number are read, and must
// have its checksum.
func (h *History) ChainTo(ctx context.Context, end Point) (*Chain, error) {
	c := &Chain{end: end, history: h}
	seen := map[Point]bool{end: true}
	type step struct {
		to   Point
		next *link
	}
	for queue := []step{{end, nil}}; len(queue) > 0; {
		s := queue[0]
		queue = queue[1:]
		found := h.ends[s.to]
		if len(found) == 0 && s.to.Number > 0 {
			var err error
			if found, err = h.containing(ctx, s.to); err != nil {
				return nil, err
			}
		}
		for _, segment := range found {
			l := &link{Part{segment, s.to.Number}, s.next}
			c.links = append(c.links, l)
			if !seen[segment.Before] {
				seen[segment.Before] = true
				queue = append(queue, step{segment.Before, l})
			}
		}
	}
	return c, nil
}

// containing returns the segments that have a note before their end. One that is damaged or was
// removed has none.
func (h *History) containing(ctx context.Context, p Point) (found []SegmentName, err error) {
	for _, s := range h.Segments {
		if s.Before.Number >= p.Number || p.Number >= s.End.Number {
			continue
		}
		sum, err := h.sumIn(ctx, s, p.Number)
		if IsUnreadable(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if sum == p.Sum {
			found = append(found, s)
		}
	}
	return found, nil
}

// sumIn returns the checksum of a note of a segment.
func (h *History) sumIn(ctx context.Context, s SegmentName, number uint64) (uint64, error) {
	if number == s.Before.Number {
		return s.Before.Sum, nil
	}
	if number == s.End.Number {
		return s.End.Sum, nil
	}
	sums := h.sums[s.name()]
	if sums == nil {
		notes, err := h.unit.ReadSegment(ctx, s)
		if err != nil {
			return 0, err
		}
		sums = map[uint64]uint64{}
		for _, n := range notes {
			sums[n.Number] = n.Sum
		}
		h.sums[s.name()] = sums
	}
	return sums[number], nil
}

// Start returns the number of the note behind which the chain begins.
func (c *Chain) Start() uint64 {
	start := c.end.Number
	for _, l := range c.links {
		start = min(start, l.Before.Number)
	}
	return start
}

// Point returns a note of the chain. It returns false if the chain does not reach back to it, or only
// with a segment that cannot be read.
func (c *Chain) Point(ctx context.Context, number uint64) (p Point, found bool, err error) {
	if number == c.end.Number {
		return c.end, true, nil
	}
	for _, l := range c.links {
		if number < l.Before.Number || number > l.Last {
			continue
		}
		sum, err := c.history.sumIn(ctx, l.SegmentName, number)
		if IsUnreadable(err) {
			continue
		}
		return Point{number, sum}, err == nil, err
	}
	return Point{}, false, nil
}

// Backward returns the segments of the chain, those with the last notes first.
func (c *Chain) Backward() (parts []Part) {
	for _, l := range c.links {
		parts = append(parts, l.Part)
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return -cmp.Compare(a.Last, b.Last) })
	return parts
}

// Parts returns what follows a note, up to the end of the chain, in order. It returns false if the
// note is not on the chain.
func (c *Chain) Parts(ctx context.Context, from Point) (parts []Part, found bool, err error) {
	if from == c.end {
		return nil, true, nil
	}
	for _, l := range c.links {
		if from.Number < l.Before.Number || from.Number >= l.Last {
			continue
		}
		sum, err := c.history.sumIn(ctx, l.SegmentName, from.Number)
		if IsUnreadable(err) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if sum != from.Sum {
			continue
		}
		for ; l != nil; l = l.next {
			parts = append(parts, l.Part)
		}
		return parts, true, nil
	}
	return nil, false, nil
}

// Bases returns the snapshots that may be on the chain, or on what follows it, the newest first. No note of
// which they have a part is behind last.
func (c *Chain) Bases(last uint64) (bases []SnapshotName) {
	start := c.Start()
	for _, s := range c.history.Snapshots {
		if s.Applied.Number >= start && s.Begun.Number <= last {
			bases = append(bases, s)
		}
	}
	slices.SortFunc(bases, func(a, b SnapshotName) int {
		return cmp.Or(-cmp.Compare(a.Applied.Number, b.Applied.Number), cmp.Compare(a.Begun.Number, b.Begun.Number), cmp.Compare(a.ID, b.ID))
	})
	return bases
}
