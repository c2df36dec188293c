//go:build !race

package wal

import (
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// TestRoomForAnEntry checks that encoding allocates a frame's memory once, whatever the entry
// contains. Otherwise an entry of megabytes would be copied several times.
func TestRoomForAnEntry(t *testing.T) {
	const many = 20_000
	of := func(typ event.Type, v event.Vector) *Entry {
		return &Entry{Kind: Rows, IDs: []int32{2}, Columns: &event.Columns{Rows: many, Spec: []event.Column{{Type: typ}}, Vectors: []event.Vector{v}}}
	}
	null := append(make([]uint8, many-1), 1)
	for name, e := range map[string]*Entry{
		"pipeline":     {Kind: Reset, Pipeline: strings.Repeat("x", many)},
		"partition":    {Kind: Reset, Partition: strings.Repeat("x", many)},
		"fingerprints": {Kind: Rows, Range: event.Range{Count: many, Fingerprints: make([]uint32, many)}},
		"numbers":      of(event.Int64, event.Vector{Ints: make([]int64, many)}),
		"nulls":        of(event.Int64, event.Vector{Ints: make([]int64, many), Null: null}),
		"floats":       of(event.Float64, event.Vector{Floats: make([]float64, many)}),
		"texts":        of(event.String, event.Vector{Ends: append(make([]uint32, many-1), 1<<20), Bytes: make([]byte, 1<<20)}),
		"empty texts":  of(event.String, event.Vector{Ends: make([]uint32, many)}),
		"columns": {Kind: Rows, IDs: make([]int32, many), Columns: &event.Columns{
			Spec: slices.Repeat([]event.Column{{Type: event.Int64}}, many), Vectors: make([]event.Vector, many),
		}},
	} {
		if n := testing.AllocsPerRun(10, func() { AppendEntry(nil, e) }); n != 1 {
			t.Errorf("%s: got %v allocations, want 1", name, n)
		}
	}
}
