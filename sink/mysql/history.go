package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
)

// How long fingerprints are kept: for so long, but of no more than so many
// events of a partition. Older ranges are folded into one row without.
const (
	printAge    = 2 * time.Hour
	printEvents = 16_000_000
)

// smallRange is the number of events below which rows that touch are packed
// into one, fingerprints and all: a source that trickles would make millions.
const smallRange = 256

// A history is the rows that perigee_ranges has of one partition, so that they
// can be folded without reading them. It is right because only the owner writes
// them, and reads them again when it does not know what became of a fold.
type history []record

type record struct {
	first, end uint64
	committed  time.Time
	printed    bool
	prints     []uint32 // only of small rows
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

// A use says what a row of the ledger is still good for.
type use int

const (
	keep use = iota // as it is
	pack            // with its neighbours: it is small
	shed            // without its fingerprints
)

// folds returns what rows that touch can become: one row for each range.
func (h history) folds(now time.Time) (folded []event.Range) {
	tooMany := h.beyond(printEvents)
	for i := 0; i < len(h); {
		first, of := i, h[i].use(now, i < tooMany)
		for i++; i < len(h) && h[i-1].end == h[i].first && h[i].use(now, i < tooMany) == of; {
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

// beyond returns how many rows lie before the last n events.
func (h history) beyond(n uint64) int {
	i := len(h)
	for events := uint64(0); i > 0 && events < n; {
		i--
		events += h[i].end - h[i].first
	}
	return i
}

// fold replaces rows by the one that they have become.
func (h *history) fold(r event.Range, now time.Time) {
	i := slices.IndexFunc(*h, func(row record) bool { return row.first == r.First })
	j := i
	for j < len(*h) && (*h)[j].end <= r.End() {
		j++
	}
	*h = slices.Replace(*h, i, j, newRecord(r, now))
}

// foldEvery is how many commits lie between two folds.
const foldEvery = 256

// fold makes fewer rows of those whose time has come. What fails is met again
// by the next fold.
func (w *writer) fold(ctx context.Context, conn *sql.Conn) {
	for _, r := range w.beginFold() {
		if err := w.foldRange(ctx, conn, r); err != nil {
			w.sink.log.Debug("folding the ranges that are committed", "range", r.String(), "error", err)
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.folding = false
}

// beginFold returns nothing when another lane is at it.
func (w *writer) beginFold() []event.Range {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.folding {
		return nil
	}
	w.folding = true
	return w.past.folds(time.Now())
}

// foldRange grows the first row and deletes the others. The first row is
// inserted, not updated: an update of a row that a later owner has folded away
// would find nothing and so not meet the fence.
func (w *writer) foldRange(ctx context.Context, conn *sql.Conn, r event.Range) error {
	text := w.appendRanges([]byte(startStatement+";"), []event.Range{r}, "")
	text = append(text, " ON DUPLICATE KEY UPDATE events = VALUES(events), epoch = VALUES(epoch),"+
		" committed = VALUES(committed), prints = VALUES(prints);DELETE FROM perigee_ranges WHERE owner = "...)
	text = strconv.AppendUint(text, w.id, 10)
	text = strconv.AppendUint(append(text, " AND first > "...), r.First, 10)
	text = strconv.AppendUint(append(text, " AND first < "...), r.End(), 10)
	text = append(text, commitStatement...)
	if err := send(ctx, conn, text); err != nil {
		if judge(err) == unknown {
			w.lose()
		}
		rollBack(ctx, conn)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past.fold(r, time.Now())
	return nil
}
