package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
)

// How long fingerprints are kept: for so long, but of no more than so many
// events of a partition. Older ranges are folded into one entry without.
const (
	printAge    = 2 * time.Hour
	printEvents = 16_000_000
)

// smallRange is the number of events below which entries that touch are packed
// into one, fingerprints and all: a source that trickles would make millions.
const smallRange = 256

// packEvents limits the events of one packed entry. Packing sends all its
// fingerprints in one statement, and the connection of a pool keeps a buffer as
// large as its largest statement (up to 256 KiB in the MySQL driver): without the
// limit every connection of a trickling pipeline ends up with such a buffer.
const packEvents = 4096

// An Entry is one range as the database keeps it.
type Entry struct {
	Range event.Range
	Age   time.Duration // since it was committed
}

// A history is the entries of one partition, so that they can be folded without
// reading them. It is right because only the owner writes them, and reads them
// again when it does not know what became of a fold.
type history []record

type record struct {
	first, end uint64
	committed  time.Time
	printed    bool
	prints     []uint32 // only of small ranges
}

// newRecord keeps nothing of r's memory.
func newRecord(r event.Range, committed time.Time) record {
	row := record{first: r.First, end: r.End(), committed: committed, printed: len(r.Prints) > 0}
	if r.Count < smallRange {
		row.prints = slices.Clone(r.Prints)
	}
	return row
}

func (h *history) add(r event.Range, committed time.Time) {
	i, _ := slices.BinarySearchFunc(*h, r.First, func(a record, first uint64) int { return cmp.Compare(a.first, first) })
	*h = slices.Insert(*h, i, newRecord(r, committed))
}

// A use says what an entry is still good for.
type use int

const (
	keep use = iota // as it is
	pack            // with its neighbours: it is small
	shed            // without its fingerprints
)

// folds returns what entries that touch can become: one for each range.
func (h history) folds(now time.Time) (folded []event.Range) {
	tooMany := h.beyond(printEvents)
	for i := 0; i < len(h); {
		first, of := i, h[i].use(now, i < tooMany)
		for i++; i < len(h) && h[i-1].end == h[i].first && h[i].use(now, i < tooMany) == of; {
			if of == pack && h[i].end-h[first].first > packEvents {
				break
			}
			i++
		}
		run := h[first:i]
		if of == keep || len(run) == 1 && (of == pack || !run[0].printed) {
			continue
		}
		r := event.Range{First: run[0].first, Count: run[len(run)-1].end - run[0].first}
		for _, row := range run {
			if of == pack {
				r.Prints = append(r.Prints, row.prints...)
			}
		}
		folded = append(folded, r)
	}
	return folded
}

func (r record) use(now time.Time, tooMany bool) use {
	switch {
	case !r.printed || tooMany || now.Sub(r.committed) >= printAge:
		return shed
	case r.end-r.first < smallRange:
		return pack
	}
	return keep
}

// beyond returns how many records lie before the last n events.
func (h history) beyond(n uint64) int {
	i := len(h)
	for events := uint64(0); i > 0 && events < n; {
		i--
		events += h[i].end - h[i].first
	}
	return i
}

// fold replaces records by the one that they have become.
func (h *history) fold(r event.Range, now time.Time) {
	i := slices.IndexFunc(*h, func(row record) bool { return row.first == r.First })
	j := i
	for j < len(*h) && (*h)[j].end <= r.End() {
		j++
	}
	*h = slices.Replace(*h, i, j, newRecord(r, now))
}
