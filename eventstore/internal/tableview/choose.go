//go:build linux && cgo

package tableview

import (
	"slices"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/bloom"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
)

// A Selection is the frames and files of a table that a query reads.
type Selection struct {
	Frames []*logscan.Frame
	Files  []*manifest.File
	// after excludes rows with an earlier event time, in microseconds; nil excludes none.
	after *int64
	// rows holds the row ranges to read of a file; files without an entry are read whole.
	Rows map[*manifest.File][]bloom.RowRange
	// equal is as in bounds. Rows without one of the texts may be excluded.
	Equal map[string][]string
}

// Within drops frames and files without rows within the bounds.
func (s Selection) Within(t *manifest.Table, b bounds) Selection {
	if t.Time == "" {
		return s
	}
	return Selection{
		Frames: slices.DeleteFunc(slices.Clone(s.Frames), func(f *logscan.Frame) bool { return f.MaxTime < b.min || f.MinTime > b.max }),
		Files: slices.DeleteFunc(slices.Clone(s.Files), func(f *manifest.File) bool {
			return f.MaxTime < b.min || f.MinTime > b.max
		}),
		after: s.after,
		Rows:  s.Rows,
		Equal: s.Equal,
	}
}

// Local drops the files whose data are in a lake.
func (s Selection) Local() Selection {
	s.Files = slices.DeleteFunc(slices.Clone(s.Files), func(f *manifest.File) bool { return f.Remote != nil })
	return s
}

// rangesMax is the maximum number of row ranges that a query reads separately. Each is a part
// of the query's view and costs DuckDB 0.1 ms. Beyond the maximum, the query reads whole
// files.
//
// DuckDB turns a list of more than listMax values into a hash table for a join, 7 MB in each
// part. The maximum for such lists is rangesMaxOfList.
const (
	rangesMax       = 64
	rangesMaxOfList = 8
	listMax         = 4
)

// Choose drops the files of a table that cannot have the wanted values. For the others it
// sets the row ranges that may have them, unless there are too many. It ignores the column
// that files are sorted by: DuckDB's own statistics locate its values.
func (s Selection) Choose(b *bloom.Cache, folder string, t *manifest.Table) Selection {
	hashes, sorted, maxRanges := map[int32][]uint64{}, true, rangesMax
	for _, c := range bloom.Columns(t) {
		for _, text := range s.Equal[strings.ToLower(c.Name)] {
			hashes[c.ID] = append(hashes[c.ID], bloom.Hash(text))
			sorted = sorted && slices.Index(tablesql.SortColumns(t), c.Name) == 0
		}
		if len(hashes[c.ID]) > listMax {
			maxRanges = rangesMaxOfList
		}
	}
	if len(hashes) == 0 {
		return s
	}
	var files []*manifest.File
	rows, count := map[*manifest.File][]bloom.RowRange{}, 0
	for _, f := range s.Files {
		var ranges []bloom.RowRange
		known := false
		if f.Bloom != "" {
			ranges, known = b.Ranges(t.Path(folder, f.Bloom), hashes)
		}
		if !known {
			files = append(files, f)
			continue
		}
		if len(ranges) == 0 {
			continue
		}
		files = append(files, f)
		if ranges[0] != (bloom.RowRange{Begin: 0, End: f.Rows}) {
			rows[f], count = ranges, count+len(ranges)
		}
	}
	s.Files = files
	if !sorted && count <= maxRanges {
		s.Rows = rows
	}
	return s
}
