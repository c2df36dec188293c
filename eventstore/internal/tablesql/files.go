package tablesql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A FileGroup is files that one query reads.
type FileGroup struct {
	Types   Layout
	misses  bool // DuckDB's bloom filters of the files miss values; see manifest.FileFormat
	Deletes []*manifest.Delete
	Files   []*manifest.File
}

// GroupFiles groups files with the same column types and the same deletes.
func GroupFiles(t *manifest.Table, files []*manifest.File) []*FileGroup {
	var groups []*FileGroup
	index := map[string]*FileGroup{}
	for _, f := range files {
		types := LayoutOf(t, f.Schema)
		deletes := t.Deletes
		for len(deletes) > 0 && deletes[0].Number <= f.Deleted {
			deletes = deletes[1:]
		}
		misses := f.Format < manifest.FileFormat && slices.ContainsFunc(types, isMissed)
		key := fmt.Sprint(types, len(deletes), misses, f.Open, f.Fitted) // open files have hidden columns
		if index[key] == nil {
			index[key] = &FileGroup{Types: types, misses: misses, Deletes: deletes}
			groups = append(groups, index[key])
		}
		index[key].Files = append(index[key].Files, f)
	}
	return groups
}

// isMissed reports whether DuckDB's bloom filters miss values of a type.
func isMissed(t event.Type) bool { return t == event.Float64 || t == event.Bytes }

// SQL returns a query for the rows of files of the group that satisfy where.
func (g *FileGroup) SQL(folder string, t *manifest.Table, files []*manifest.File, where string) string {
	sql := filesSQL(folder, t, files) + where
	if !g.misses {
		return sql
	}
	var list []string // DuckDB does not push a predicate on a conditional down to the file
	for i, c := range Shown(t.Current()) {
		if isMissed(g.Types[i]) {
			list = append(list, fmt.Sprintf("if(%s IS NULL, NULL, %[1]s) AS %[1]s", sqltext.QuoteName(c.Name)))
		}
	}
	return "(SELECT * REPLACE (" + strings.Join(list, ", ") + ") FROM " + sql + ")"
}

// FileRowNumber is DuckDB's virtual column for a row's number in its file. A file column of
// the same name hides it.
const FileRowNumber = "file_row_number"

// filesSQL returns a query for the rows of files.
func filesSQL(folder string, t *manifest.Table, files []*manifest.File) string {
	var paths []string
	for _, f := range files {
		paths = append(paths, sqltext.Literal(t.Path(folder, f.Name)))
	}
	return "read_parquet([" + strings.Join(paths, ", ") + "], hive_partitioning = false)"
}

// LastDelete returns the number of the newest delete of a table, or 0.
func LastDelete(t *manifest.Table) (number uint64) {
	for _, d := range t.Deletes {
		number = max(number, d.Number)
	}
	return number
}

// File returns a query for the rows of a file that are not deleted, in the newest schema.
func File(folder string, t *manifest.Table, f *manifest.File, more ...string) string {
	group := GroupFiles(t, []*manifest.File{f})[0]
	return Part(t, group.SQL(folder, t, group.Files, ""), group.Types, group.Deletes, more...)
}
