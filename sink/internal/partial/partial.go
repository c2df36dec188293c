// Package partial is for at-least-once sinks that write the rows of a batch one by
// one or in parts. It remembers the rows that were written when others were
// rejected, so that a retry without the rejected rows does not write them again.
//
// A Written is safe for concurrent use.
package partial

import (
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A Written is the memory of one writer.
type Written struct {
	mu   sync.Mutex
	rows map[uint64]map[row]bool // of ranges with rejected rows, by their first position
}

// A row is identified by its event and its content.
type row struct{ position, sum uint64 }

func rowOf(out *event.Output, i int) row {
	return row{out.Position(i), xxhash.Sum64(out.Doc(i))}
}

// Missing returns the rows that no earlier write of the range wrote.
func (w *Written) Missing(out *event.Output) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	written := w.rows[out.Range.First]
	rows := make([]int, 0, out.Len())
	for i := range out.Len() {
		if written == nil || !written[rowOf(out, i)] {
			rows = append(rows, i)
		}
	}
	return rows
}

// Record records the outcome of a write: all rows were written but the rejected
// ones. It returns what Write returns.
func (w *Written) Record(out *event.Output, rejected []sink.RowError) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(rejected) == 0 {
		delete(w.rows, out.Range.First)
		return nil
	}
	written := make(map[row]bool, out.Len())
	for i := range out.Len() {
		if !slices.ContainsFunc(rejected, func(r sink.RowError) bool { return r.Row == i }) {
			written[rowOf(out, i)] = true
		}
	}
	if w.rows == nil {
		w.rows = make(map[uint64]map[row]bool)
	}
	w.rows[out.Range.First] = written
	return &sink.RowErrors{Rows: rejected}
}
