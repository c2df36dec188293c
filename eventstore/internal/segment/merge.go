//go:build linux && cgo

package segment

/*
#cgo CFLAGS: -Wall -Wextra
#include <stdlib.h>
#include "merge.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// MergeFiles merges files of one day into one file, without the deleted rows. It writes a
// single file that has none only if all is set.
func (w *Writer) MergeFiles(t *manifest.Table, files []*manifest.File, all bool) (protocol.Merged, error) {
	whole := manifest.File{Day: files[0].Day, MinTime: files[0].MinTime, MaxTime: files[0].MaxTime}
	for _, f := range files {
		if f.Day != whole.Day {
			return protocol.Merged{}, fmt.Errorf("file %s is not of the day %q", f.Name, whole.Day)
		}
		whole.Rows += f.Rows
		whole.MinTime, whole.MaxTime, whole.Log = min(whole.MinTime, f.MinTime), max(whole.MaxTime, f.MaxTime), max(whole.Log, f.Log)
	}
	if before := whole.Rows; slices.ContainsFunc(files, func(f *manifest.File) bool { return f.Deleted < tablesql.LastDelete(t) }) {
		if err := w.countLeft(t, files, &whole); err != nil {
			return protocol.Merged{}, err
		}
		if whole.Rows == 0 {
			return protocol.Merged{}, nil
		}
		if len(files) == 1 && whole.Rows == before && !all {
			return protocol.Merged{Unchanged: true}, nil
		}
	} else if len(files) == 1 && !all {
		return protocol.Merged{Unchanged: true}, nil
	}
	rows, err := w.openMerge(t, files)
	if err != nil {
		return protocol.Merged{}, err
	}
	defer rows.close()
	width := int64(0)
	for _, f := range files {
		width = max(width, f.RowBytes())
		if whole.NegativeZero, err = w.mayHaveNegativeZero(t, f, whole.NegativeZero); err != nil {
			return protocol.Merged{}, err
		}
	}
	f, err := w.writeFile(t, whole, rows.sql(), width)
	return protocol.Merged{File: &f}, err
}

// mayHaveNegativeZero reports whether a file may have a double of -0.0, or known is set. For
// files of earlier formats, which the manifest does not describe, it reads the file.
func (w *Writer) mayHaveNegativeZero(t *manifest.Table, f *manifest.File, known bool) (bool, error) {
	if known || f.NegativeZero || f.Format >= manifest.FileFormat {
		return known || f.NegativeZero, nil
	}
	var conditions []string
	for i, kind := range tablesql.LayoutOf(t, f.Schema) {
		if c := tablesql.Shown(t.Current())[i]; kind == event.Float64 && c.Type == event.Float64 {
			conditions = append(conditions, fmt.Sprintf("%s = 0 AND signbit(%[1]s)", sqltext.QuoteName(c.Name)))
		}
	}
	if len(conditions) == 0 {
		return false, nil
	}
	rows, err := w.conn.Run("SELECT 1 FROM (" + tablesql.File(w.settings.Folder, t, f) + ") WHERE " + strings.Join(conditions, " OR ") + " LIMIT 1")
	return len(rows) > 0, err
}

// countLeft counts the rows of files that are not deleted.
func (w *Writer) countLeft(t *manifest.Table, files []*manifest.File, left *manifest.File) error {
	sql, perMicro := tablesql.Time(t)
	*left = manifest.File{Day: left.Day, Log: left.Log}
	openTimes(left)
	for _, f := range files {
		rows, err := w.conn.Run(fmt.Sprintf("SELECT count(*), CAST(min(%s) AS BIGINT), CAST(max(%[1]s) AS BIGINT) FROM (%s)", sql, tablesql.File(w.settings.Folder, t, f)))
		if err != nil {
			return err
		}
		left.Rows += rows[0][0].(int64)
		if least, ok := rows[0][1].(int64); ok {
			widen(left, tablesql.Micros(least, perMicro), tablesql.Micros(rows[0][2].(int64), perMicro))
		}
	}
	closeTimes(left)
	return nil
}

// A mergedRows merges the rows of several sorted files, with one chunk of each in memory: the
// table function merged_rows. It avoids a new sort by DuckDB.
type mergedRows struct {
	conns  []*duckdb.Conn
	inputs []*duckdb.Streaming
	c      *C.row_merge
}

// openMerge starts to read files. Close the mergedRows after the statement that reads them.
func (w *Writer) openMerge(t *manifest.Table, files []*manifest.File) (_ *mergedRows, err error) {
	m := &mergedRows{}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	results := unsafe.Slice((*C.duckdb_result)(C.calloc(C.size_t(len(files)), C.sizeof_duckdb_result)), len(files))
	defer C.free(unsafe.Pointer(unsafe.SliceData(results)))
	for i, f := range files {
		c, err := w.connect()
		if err != nil {
			return nil, err
		}
		m.conns = append(m.conns, c)
		if err := c.Exec(oneChunkSQL); err != nil {
			return nil, err
		}
		input, err := c.Open("SELECT " + tablesql.ColumnList(t) + ", " + tablesql.SortKey(tablesql.SortColumns(t)) + " FROM (" + tablesql.File(w.settings.Folder, t, f) + ")")
		if err != nil {
			return nil, err
		}
		m.inputs = append(m.inputs, input)
		results[i] = *(*C.duckdb_result)(unsafe.Pointer(&input.Result.Native))
	}
	if m.c = C.pes_merge_new(unsafe.SliceData(results), C.uint64_t(len(files))); m.c == nil {
		return nil, errors.New("out of memory")
	}
	return m, nil
}

// oneChunkSQL limits a connection to one chunk of read-ahead. The default is a buffer of 1
// MB, which does not count long texts.
const oneChunkSQL = "SET streaming_buffer_size = '1KB'"

// Compile-time check that the bindings' struct has the size of DuckDB's.
var _ = [1]struct{}{}[unsafe.Sizeof(duck.Result{})-C.sizeof_duckdb_result]

// sql returns the FROM clause that reads the rows.
func (m *mergedRows) sql() string { return fmt.Sprintf("FROM merged_rows(%d)", uint64(m.c.id)) }

func (m *mergedRows) close() {
	if m.c != nil {
		C.pes_merge_free(m.c)
	}
	for _, input := range m.inputs {
		input.Close()
	}
	for _, c := range m.conns {
		c.Close()
	}
}

// RegisterMerge registers merged_rows with the database of a connection.
func RegisterMerge(c duck.Connection) error {
	if C.pes_merge_register(c.Ptr) == 0 {
		return errors.New("register merged_rows with DuckDB")
	}
	return nil
}
