//go:build linux && cgo

package logscan

import (
	"slices"
	"sync/atomic"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
)

// Columns returns the columns of a scan of the frames.
func (g Group) Columns(t *manifest.Table) []Column {
	columns := []Column{}
	for i, c := range tablesql.Shown(t.Current()) {
		if stored := g.Types[i]; stored != 0 {
			kind := stored
			if c.Digits != (event.Digits{}) {
				kind = event.String // JSON would go through a double on its way to DECIMAL
			}
			columns = append(columns, Column{c.ID, c.Name, kind, stored})
		}
	}
	if len(columns) == 0 { // DuckDB has no table without columns
		columns = append(columns, Column{manifest.RestID, catalog.RestColumn, event.JSON, event.JSON})
	}
	return columns
}

// frameLayout returns the types of the newest schema's columns in a frame.
func frameLayout(t *manifest.Table, f *Frame) tablesql.Layout {
	if t.Schema(f.Schema) != nil {
		return tablesql.LayoutOf(t, f.Schema)
	}
	// The frame's file was sealed after a tail began to read it, and the manifest has
	// dropped the version.
	var types tablesql.Layout
	for _, c := range tablesql.Shown(t.Current()) {
		found := event.Type(0)
		if kind, _, ok := f.record.Column(c.ID); ok {
			found = kind
		} else if c.ID == manifest.RestID { // other frames of the version may have it
			found = event.JSON
		}
		types = append(types, found)
	}
	return types
}

// A Group is frames that one scan reads.
type Group struct {
	Types  tablesql.Layout
	Frames []*Frame
}

// GroupFrames groups frames whose columns have the same types. A missing column reads as
// null, so one group can have frames of many versions.
func GroupFrames(t *manifest.Table, frames []*Frame) []Group {
	groups := []Group{{Types: tablesql.LayoutOf(t, t.Current().Version)}}
	index := map[uint64]int{}
	for _, f := range frames {
		i, known := index[f.Schema]
		if !known {
			types := frameLayout(t, f)
			for i = range groups {
				if joined, ok := groups[i].Types.Join(types); ok {
					groups[i].Types, known = joined, true
					break
				}
			}
			if !known {
				i = len(groups)
				groups = append(groups, Group{Types: types})
			}
			index[f.Schema] = i
		}
		groups[i].Frames = append(groups[i].Frames, f)
	}
	if len(frames) > 0 {
		groups = slices.DeleteFunc(groups, func(g Group) bool { return len(g.Frames) == 0 })
	}
	return groups
}

// Width returns the approximate bytes per row of the frames.
func (g Group) Width() (bytes int64) {
	rows := 0
	for _, f := range g.Frames {
		rows += f.Rows
		for v := range f.record.Vectors() {
			bytes += int64(len(v.Bytes))
		}
	}
	return bytes / int64(max(rows, 1))
}

// scansNumbered is the last scan number assigned.
var scansNumbered atomic.Uint64

// NextID returns a number that no scan of this process has.
func NextID() uint64 { return scansNumbered.Add(1) }
