//go:build linux && cgo

// Package tableview chooses the log frames, files and row groups of a table that a query needs,
// by the conditions of the query, and shows their rows to DuckDB as a view. A choice never
// leaves out a row that the query selects. A View belongs to one query.
package tableview

import (
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/bloom"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A View is one query's view of a table. It unites log frames and Parquet files, casts
// each to the table's newest schema, and excludes deleted rows.
type View struct {
	table  *manifest.Table
	scanID func(table uint32, part int) uint64
	parts  []string
	after  string // condition on all parts
	equal  map[string][]string
	scans  []*logscan.Scan
}

// New creates the view of a table. Close it after the query. scanID returns the
// number of a scan.
func New(folder string, t *manifest.Table, from Selection, scanID func(table uint32, part int) uint64) (*View, error) {
	v := &View{table: t, scanID: scanID, equal: from.Equal}
	for deletes, frames := range v.splitFrames(from.Frames) {
		if len(frames) == 0 {
			continue
		}
		if err := v.addFrames(frames, deletes); err != nil {
			v.Close()
			return nil, err
		}
	}
	for _, group := range tablesql.GroupFiles(t, from.Files) {
		v.addFiles(folder, group, from.Rows)
	}
	if len(v.parts) == 0 {
		if err := v.addFrames(nil, 0); err != nil {
			return nil, err
		}
	}
	if from.after != nil {
		v.after = fmt.Sprintf(" WHERE %s >= make_timestamp(%d)", sqltext.QuoteName(t.Time), *from.after)
		if tablesql.TimeType(t) == event.TimestampNS {
			v.after = fmt.Sprintf(" WHERE %s >= make_timestamp_ns(%d)", sqltext.QuoteName(t.Time), *from.after*1000)
		}
	}
	return v, nil
}

// SQL returns the query of the view.
func (v *View) SQL() string {
	sql := strings.Join(v.parts, " UNION ALL ")
	if v.after != "" {
		sql = "SELECT * FROM (" + sql + ")" + v.after
	}
	return sql
}

// Close releases the log frames. All results that read the view must be closed.
func (v *View) Close() {
	for _, s := range v.scans {
		s.Close()
	}
}

// splitFrames groups frames by the number of the table's last deletes that apply to them. A
// delete applies to all frames before its log position.
func (v *View) splitFrames(frames []*logscan.Frame) [][]*logscan.Frame {
	groups := make([][]*logscan.Frame, len(v.table.Deletes)+1)
	for _, f := range frames {
		apply := 0
		for _, d := range v.table.Deletes {
			if f.Position.Compare(d.Before) < 0 {
				apply++
			}
		}
		groups[apply] = append(groups[apply], f)
	}
	return groups
}

// addFrames adds frames to which the table's last deletes apply; deletes is their number.
// Deletes are ordered by log position.
func (v *View) addFrames(frames []*logscan.Frame, deletes int) error {
	for _, group := range logscan.GroupFrames(v.table, frames) {
		s, err := logscan.New(v.scanID(v.table.ID, len(v.scans)), group.Columns(v.table), group.Frames, v.equal)
		if err != nil {
			return err
		}
		v.scans = append(v.scans, s)
		v.parts = append(v.parts, tablesql.Part(v.table, s.SQL(), group.Types, v.table.Deletes[len(v.table.Deletes)-deletes:]))
	}
	return nil
}

// addFiles adds files. For a file in rows it adds only the given row ranges.
func (v *View) addFiles(folder string, g *tablesql.FileGroup, rows map[*manifest.File][]bloom.RowRange) {
	var whole []*manifest.File
	for _, f := range g.Files {
		if rows[f] == nil {
			whole = append(whole, f)
		}
		for _, r := range rows[f] {
			where := fmt.Sprintf(" WHERE %s BETWEEN %d AND %d", tablesql.FileRowNumber, r.Begin, r.End-1)
			v.parts = append(v.parts, tablesql.Part(v.table, g.SQL(folder, v.table, []*manifest.File{f}, where), g.Types, g.Deletes))
		}
	}
	if len(whole) > 0 {
		v.parts = append(v.parts, tablesql.Part(v.table, g.SQL(folder, v.table, whole, ""), g.Types, g.Deletes))
	}
}
