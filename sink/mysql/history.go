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

// A history is the rows that perigee_ranges has of one partition, so that they
// can be folded without reading them. It is right because only the owner writes
// them; where a fold was lost half way, folding again does no harm.
type history []record

type record struct {
	first, end uint64
	committed  time.Time
	printed    bool
}

func (h *history) add(r event.Range, committed time.Time) {
	i, _ := slices.BinarySearchFunc(*h, r.First, func(a record, first uint64) int { return cmp.Compare(a.first, first) })
	*h = slices.Insert(*h, i, record{r.First, r.End(), committed, len(r.Prints) > 0})
}

// folds returns the runs of touching rows whose fingerprints are not needed any
// more: the rows of a run can become one. A lone row is one only to shed its
// fingerprints.
func (h history) folds(now time.Time) (runs []event.Range) {
	tooMany := h.beyond(printEvents)
	spent := func(i int) bool {
		return i < tooMany || !h[i].printed || now.Sub(h[i].committed) >= printAge
	}
	for i := 0; i < len(h); i++ {
		first := i
		for i < len(h) && spent(i) && (i == first || h[i-1].end == h[i].first) {
			i++
		}
		if i-first > 1 || i-first == 1 && h[first].printed {
			runs = append(runs, event.Range{First: h[first].first, Count: h[i-1].end - h[first].first})
		}
		if i > first {
			i-- // the row that ended the run may begin the next
		}
	}
	return runs
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

// fold replaces a run by the one row it has become.
func (h *history) fold(first, end uint64) {
	i := slices.IndexFunc(*h, func(r record) bool { return r.first == first })
	j := i
	for j < len(*h) && (*h)[j].end <= end {
		j++
	}
	folded := record{first: first, end: end, committed: (*h)[j-1].committed}
	*h = slices.Replace(*h, i, j, folded)
}

// foldEvery is how many commits lie between two folds.
const foldEvery = 256

// fold makes one row of ranges whose fingerprints are not needed any more. One
// that fails is met again by the next.
func (w *writer) fold(ctx context.Context, conn *sql.Conn) {
	w.mu.Lock()
	runs := w.past.folds(time.Now())
	if w.folding {
		runs = nil
	}
	w.folding = w.folding || len(runs) > 0
	w.mu.Unlock()
	for _, run := range runs {
		if err := w.foldRun(ctx, conn, run); err != nil {
			w.sink.log.Debug("folding the ranges that are committed", "range", run.String(), "error", err)
			break
		}
	}
	if len(runs) > 0 {
		w.mu.Lock()
		w.folding = false
		w.mu.Unlock()
	}
}

// foldRun grows the first row of the run and deletes the others. The first row
// is inserted, not updated: an update of a row that a later owner has folded
// away would find nothing and so not meet the fence.
func (w *writer) foldRun(ctx context.Context, conn *sql.Conn, run event.Range) error {
	b := batch{buf: []byte(startStatement)}
	b.buf = w.appendRanges(b.buf, []event.Range{run})
	b.buf = append(b.buf, " ON DUPLICATE KEY UPDATE events = VALUES(events), epoch = VALUES(epoch), prints = NULL"+
		";DELETE FROM perigee_ranges WHERE owner = "...)
	b.buf = strconv.AppendUint(b.buf, w.id, 10)
	b.buf = strconv.AppendUint(append(b.buf, " AND first > "...), run.First, 10)
	b.buf = strconv.AppendUint(append(b.buf, " AND first < "...), run.End(), 10)
	b.buf = append(b.buf, commitStatement...)
	if err := b.send(ctx, conn); err != nil {
		rollBack(ctx, conn)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past.fold(run.First, run.End())
	return nil
}
