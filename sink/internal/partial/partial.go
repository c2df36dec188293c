// Package partial is for sinks at least once that write the rows of a batch one
// by one or in parts: it remembers which of them arrived when others were
// refused, so that those are not written again when the caller comes again
// without the refused ones.
//
// A Memory is safe for concurrent use.
package partial

import (
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A Memory belongs to one writer.
type Memory struct {
	mu      sync.Mutex
	arrived map[uint64]map[row]bool // of ranges that were refused in part, by First
}

// A row is known by its event and its content.
type row struct{ position, sum uint64 }

func rowOf(out *event.Output, i int) row {
	return row{out.Position(i), xxhash.Sum64(out.Doc(i))}
}

// Missing returns the rows that did not arrive with an earlier part of the range.
func (m *Memory) Missing(out *event.Output) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.arrived[out.Range.First]
	rows := make([]int, 0, out.Len())
	for i := range out.Len() {
		if known == nil || !known[rowOf(out, i)] {
			rows = append(rows, i)
		}
	}
	return rows
}

// Settle is told how a write ended: all rows have arrived but the bad ones. It
// returns what Write returns.
func (m *Memory) Settle(out *event.Output, bad []sink.RowError) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(bad) == 0 {
		delete(m.arrived, out.Range.First)
		return nil
	}
	known := make(map[row]bool, out.Len())
	for i := range out.Len() {
		if !slices.ContainsFunc(bad, func(b sink.RowError) bool { return b.Row == i }) {
			known[rowOf(out, i)] = true
		}
	}
	if m.arrived == nil {
		m.arrived = make(map[uint64]map[row]bool)
	}
	m.arrived[out.Range.First] = known
	return &sink.RowErrors{Rows: bad}
}
