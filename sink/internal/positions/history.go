package positions

import (
	"cmp"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
)

// Fingerprints are kept for fingerprintAge, but for at most fingerprintEvents events of a
// partition. Older ranges are merged into one entry without fingerprints.
const (
	fingerprintAge    = 2 * time.Hour
	fingerprintEvents = 16_000_000
)

// smallRange is the number of events below which adjacent entries are merged with
// their fingerprints: a source that trickles would make millions of entries.
const smallRange = 256

// maxMergedEvents limits the events of an entry that small ones are merged into.
// All its fingerprints go into one statement, and a connection of a pool keeps a
// buffer as large as its largest statement (up to 256 KiB in the MySQL driver):
// without the limit every connection of a trickling pipeline ends up with one.
const maxMergedEvents = 4096

// An Entry is one range as the database keeps it.
type Entry struct {
	Range event.Range
	Age   time.Duration // since it was committed
}

// A history is a copy of the entries of one partition, by which they can be merged
// without reading them. It stays correct because only the owner changes the entries,
// and reads them again when the outcome of a change is unknown.
type history []record

type record struct {
	first, end    uint64
	committed     time.Time
	fingerprinted bool
	fingerprints  []uint32 // only of small ranges
}

// newRecord keeps nothing of r's memory.
func newRecord(r event.Range, committed time.Time) record {
	row := record{first: r.First, end: r.End(), committed: committed, fingerprinted: len(r.Fingerprints) > 0}
	if r.Count < smallRange {
		row.fingerprints = slices.Clone(r.Fingerprints)
	}
	return row
}

func (h *history) add(r event.Range, committed time.Time) {
	i, _ := slices.BinarySearchFunc(*h, r.First, func(a record, first uint64) int { return cmp.Compare(a.first, first) })
	*h = slices.Insert(*h, i, newRecord(r, committed))
}

// A treatment is what compaction does with a record.
type treatment int

const (
	retain           treatment = iota
	mergeSmall                 // with its neighbours
	dropFingerprints           // and merge it with its neighbours
)

// compactions returns the ranges that adjacent entries can be merged into.
func (h history) compactions(now time.Time) (merged []event.Range) {
	tooMany := h.countBefore(fingerprintEvents)
	for i := 0; i < len(h); {
		first, same := i, h[i].treatment(now, i < tooMany)
		for i++; i < len(h) && h[i-1].end == h[i].first && h[i].treatment(now, i < tooMany) == same; {
			if same == mergeSmall && h[i].end-h[first].first > maxMergedEvents {
				break
			}
			i++
		}
		run := h[first:i]
		if same == retain || len(run) == 1 && (same == mergeSmall || !run[0].fingerprinted) {
			continue
		}
		r := event.Range{First: run[0].first, Count: run[len(run)-1].end - run[0].first}
		for _, row := range run {
			if same == mergeSmall {
				r.Fingerprints = append(r.Fingerprints, row.fingerprints...)
			}
		}
		merged = append(merged, r)
	}
	return merged
}

func (r record) treatment(now time.Time, tooMany bool) treatment {
	switch {
	case !r.fingerprinted || tooMany || now.Sub(r.committed) >= fingerprintAge:
		return dropFingerprints
	case r.end-r.first < smallRange:
		return mergeSmall
	}
	return retain
}

// countBefore returns how many records precede the last n events.
func (h history) countBefore(n uint64) int {
	i := len(h)
	for events := uint64(0); i > 0 && events < n; {
		i--
		events += h[i].end - h[i].first
	}
	return i
}

// merge replaces the records that lie in r by r.
func (h *history) merge(r event.Range, now time.Time) {
	i := slices.IndexFunc(*h, func(row record) bool { return row.first == r.First })
	j := i
	for j < len(*h) && (*h)[j].end <= r.End() {
		j++
	}
	*h = slices.Replace(*h, i, j, newRecord(r, now))
}
