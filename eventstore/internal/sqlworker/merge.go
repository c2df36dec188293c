//go:build linux && cgo

package sqlworker

/*
#cgo CFLAGS: -Wall -Wextra
#include <stdlib.h>
#include "merge.h"
*/
import "C"

import (
	"context"
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
	"github.com/perigeedb/perigee/internal/sqltext"
)

// merge merges each group of files of a table and day into one file.
func (w *worker) merge(ctx context.Context, q *protocol.Merge, in *job) error {
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	byName := map[string]*manifest.File{}
	for _, f := range t.Files {
		byName[f.Name] = f
	}
	out := newOutput(q.Number, q.Wide)
	merged, err := w.mergeGroups(ctx, t, q.Groups, byName, out)
	if err != nil {
		err = fmt.Errorf("table %s: %w", t.Name, err)
	}
	if failed := out.wait(); failed != nil {
		return errors.Join(err, failed, out.abandon())
	}
	if sent := in.out.WriteJSON(protocol.FilesMessage, merged); sent != nil || err != nil {
		return errors.Join(err, sent)
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

// mergeGroups merges groups of files until one fails.
func (w *worker) mergeGroups(ctx context.Context, t *manifest.Table, groups [][]string, byName map[string]*manifest.File, out *output) (all []protocol.Merged, err error) {
	s, err := w.newWriteSession(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for _, group := range groups {
		var files []*manifest.File
		for _, name := range group {
			f := byName[name]
			if f == nil {
				return all, fmt.Errorf("it has no file %s", name)
			}
			files = append(files, f)
		}
		merged, err := s.mergeFiles(t, files, out)
		if err != nil {
			return all, s.explainWrite(err)
		}
		all = append(all, merged)
	}
	return all, nil
}

// mergeFiles merges files of one day into one file, without the deleted rows.
func (s *session) mergeFiles(t *manifest.Table, files []*manifest.File, out *output) (protocol.Merged, error) {
	whole := manifest.File{Day: files[0].Day, MinTime: files[0].MinTime, MaxTime: files[0].MaxTime}
	for _, f := range files {
		if f.Day != whole.Day {
			return protocol.Merged{}, fmt.Errorf("file %s is not of the day %q", f.Name, whole.Day)
		}
		whole.Rows += f.Rows
		whole.MinTime, whole.MaxTime, whole.Log = min(whole.MinTime, f.MinTime), max(whole.MaxTime, f.MaxTime), max(whole.Log, f.Log)
	}
	if before := whole.Rows; slices.ContainsFunc(files, func(f *manifest.File) bool { return f.Deleted < lastDelete(t) }) {
		if err := s.countLeft(t, files, &whole); err != nil {
			return protocol.Merged{}, err
		}
		if whole.Rows == 0 {
			return protocol.Merged{}, nil
		}
		if len(files) == 1 && whole.Rows == before {
			return protocol.Merged{Unchanged: true}, nil
		}
	} else if len(files) == 1 {
		return protocol.Merged{Unchanged: true}, nil
	}
	rows, err := s.openMerge(t, files)
	if err != nil {
		return protocol.Merged{}, err
	}
	defer rows.close()
	width := int64(0)
	for _, f := range files {
		width = max(width, f.RowBytes())
		if whole.NegativeZero, err = s.mayHaveNegativeZero(t, f, whole.NegativeZero); err != nil {
			return protocol.Merged{}, err
		}
	}
	f, err := s.writeFile(t, whole, rows.sql(), width, out)
	return protocol.Merged{File: &f}, err
}

// mayHaveNegativeZero reports whether a file may have a double of -0.0, or known is set. For
// files of earlier formats, which the manifest does not describe, it reads the file.
func (s *session) mayHaveNegativeZero(t *manifest.Table, f *manifest.File, known bool) (bool, error) {
	if known || f.NegativeZero || f.Format >= manifest.FileFormat {
		return known || f.NegativeZero, nil
	}
	var conditions []string
	for i, kind := range layoutOf(t, f.Schema) {
		if c := shown(t.Current())[i]; kind == event.Float64 && c.Type == event.Float64 {
			conditions = append(conditions, fmt.Sprintf("%s = 0 AND signbit(%[1]s)", sqltext.QuoteName(c.Name)))
		}
	}
	if len(conditions) == 0 {
		return false, nil
	}
	rows, err := s.conn.Run("SELECT 1 FROM (" + fileSQL(s.worker.settings.Folder, t, f) + ") WHERE " + strings.Join(conditions, " OR ") + " LIMIT 1")
	return len(rows) > 0, err
}

func lastDelete(t *manifest.Table) (number uint64) {
	for _, d := range t.Deletes {
		number = max(number, d.Number)
	}
	return number
}

// countLeft counts the rows of files that are not deleted.
func (s *session) countLeft(t *manifest.Table, files []*manifest.File, left *manifest.File) error {
	sql, perMicro := timeSQL(t)
	*left = manifest.File{Day: left.Day, Log: left.Log}
	openTimes(left)
	for _, f := range files {
		rows, err := s.conn.Run(fmt.Sprintf("SELECT count(*), CAST(min(%s) AS BIGINT), CAST(max(%[1]s) AS BIGINT) FROM (%s)", sql, fileSQL(s.worker.settings.Folder, t, f)))
		if err != nil {
			return err
		}
		left.Rows += rows[0][0].(int64)
		if least, ok := rows[0][1].(int64); ok {
			widen(left, microsOf(least, perMicro), microsOf(rows[0][2].(int64), perMicro))
		}
	}
	closeTimes(left)
	return nil
}

// fileSQL returns a query for the rows of a file that are not deleted, in the newest schema.
func fileSQL(folder string, t *manifest.Table, f *manifest.File, more ...string) string {
	group := groupFiles(t, []*manifest.File{f})[0]
	return partSQL(t, group.sql(folder, t, group.files, ""), group.types, group.deletes, more...)
}

// A mergedRows merges the rows of several sorted files, with one chunk of each in memory: the
// table function merged_rows. It avoids a new sort by DuckDB.
type mergedRows struct {
	conns  []*duckdb.Conn
	inputs []*duckdb.Streaming
	c      *C.row_merge
}

// openMerge starts to read files. Close the mergedRows after the statement that reads them.
func (s *session) openMerge(t *manifest.Table, files []*manifest.File) (_ *mergedRows, err error) {
	m := &mergedRows{}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	results := unsafe.Slice((*C.duckdb_result)(C.calloc(C.size_t(len(files)), C.sizeof_duckdb_result)), len(files))
	defer C.free(unsafe.Pointer(unsafe.SliceData(results)))
	for i, f := range files {
		c, err := s.connect()
		if err != nil {
			return nil, err
		}
		m.conns = append(m.conns, c)
		if err := c.Exec(oneChunkSQL); err != nil {
			return nil, err
		}
		input, err := c.Open("SELECT " + columnList(t) + ", " + sortKeySQL(sortColumns(t)) + " FROM (" + fileSQL(s.worker.settings.Folder, t, f) + ")")
		if err != nil {
			return nil, err
		}
		m.inputs = append(m.inputs, input)
		results[i] = *(*C.duckdb_result)(unsafe.Pointer(&input.Result.Native))
	}
	if m.c = C.merge_new(unsafe.SliceData(results), C.uint64_t(len(files))); m.c == nil {
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
		C.merge_free(m.c)
	}
	for _, input := range m.inputs {
		input.Close()
	}
	for _, c := range m.conns {
		c.Close()
	}
}

// registerMerge registers merged_rows with the database of a connection.
func registerMerge(c duck.Connection) error {
	if C.merge_register(c.Ptr) == 0 {
		return errors.New("register merged_rows with DuckDB")
	}
	return nil
}
