//go:build linux && cgo

package segment

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/bloom"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// newTestWriter returns a writer with a database of its own.
func newTestWriter(t *testing.T, f *storetest.Folder) *Writer {
	t.Helper()
	db, err := duckdb.Open(map[string]string{"threads": "1", "preserve_insertion_order": "false"})
	if err != nil {
		t.Fatal(err)
	}
	connect := func() (*duckdb.Conn, error) { return duckdb.Connect(db) }
	conn, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(logscan.Register(conn.Native), RegisterMerge(conn.Native)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		duck.Close(&db)
	})
	settings := protocol.Settings{Folder: f.Path, Role: protocol.MergeRole, Memory: 128 << 20, Threads: 1}
	return NewWriter(t.Context(), conn, connect, settings, NewOutput(f.M.NextSegment, false))
}

// sealFile moves the rows of a log file into files of the manifest.
func sealFile(t *testing.T, f *storetest.Folder, number uint64) {
	t.Helper()
	w := newTestWriter(t, f)
	log, err := logscan.NewFiles(manifest.LogFolder(f.Path)).Open(number, f.Ends)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, table := range f.M.Tables {
		files, err := w.WriteFrames(table, log.Of(table.ID))
		if err := errors.Join(err, w.out.Wait()); err != nil {
			t.Fatal(err)
		}
		for i := range files {
			table.Files = append(table.Files, &files[i])
		}
	}
	f.M.NextSegment++
	f.M.LogStart = number + 1
	f.Save()
}

// TestMergedChunksOfLongTexts merges rows with alternating long texts and nulls. A chunk is
// entirely in memory, so its texts must limit its length.
func TestMergedChunksOfLongTexts(t *testing.T) {
	f := storetest.New(t)
	table := f.AddTable("events", storetest.Column(5, "text", event.String))
	const rows, width, maxText = 60, 100 << 10, 1 << 20
	for number := range uint64(2) {
		f.AppendFrame(number+1, storetest.FrameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			switch {
			case c.Name == "event":
				storetest.AddText(v, "event")
			case c.Name == "text" && row%2 == 0:
				storetest.AddText(v, strings.Repeat("x", width))
			case c.Name == "text":
				v.Null[row] = 1
				storetest.AddText(v, "")
			default:
				storetest.Row(int(number))(c, v, 2*row)
			}
		}))
		sealFile(t, f, number+1)
	}
	w := newTestWriter(t, f)
	merge, err := w.openMerge(table, table.Files)
	if err != nil {
		t.Fatal(err)
	}
	defer merge.close()
	all := 0
	err = w.conn.Stream("SELECT text "+merge.sql(), func(batch arrow.RecordBatch) error {
		texts := (int(batch.NumRows()) - batch.Column(0).NullN()) * width
		if texts >= maxText+width {
			t.Errorf("a chunk of %d rows has %d bytes of text, and at most %d and one text more are wanted", batch.NumRows(), texts, maxText)
		}
		all += int(batch.NumRows())
		return nil
	})
	if err != nil || all != 2*rows {
		t.Errorf("got %d rows and error %v, want %d", all, err, 2*rows)
	}
}

// TestMergeReadsEachFile opens files for a merge. Each has its own connection, which is
// closed with the merge, even if a file cannot be read.
func TestMergeReadsEachFile(t *testing.T) {
	f := storetest.New(t)
	table := f.AddTable("events")
	for number := range uint64(2) {
		f.AppendFrame(number+1, storetest.FrameOf(table, 10, storetest.Row(10*int(number))))
		sealFile(t, f, number+1)
	}
	w := newTestWriter(t, f)
	connections := func() string {
		t.Helper()
		rows, err := w.conn.Run("FROM duckdb_connection_count()")
		if err != nil {
			t.Fatal(err)
		}
		return protocol.Text(rows[0][0])
	}
	before := connections()
	rows, err := w.openMerge(table, table.Files)
	if err != nil {
		t.Fatal(err)
	}
	if merged, err := w.conn.Run("SELECT count(*), max(id) " + rows.sql()); err != nil || protocol.Text(merged[0][0]) != "20" || protocol.Text(merged[0][1]) != "19" {
		t.Errorf("merged: got %v and error %v, want 20 rows, the last with id 19", merged, err)
	}
	rows.close()
	missing := *table.Files[0]
	missing.Name = "2026-11-22/none.parquet"
	if _, err := w.openMerge(table, []*manifest.File{table.Files[0], &missing}); err == nil {
		t.Error("a file that is missing was opened")
	}
	if after := connections(); after != before {
		t.Errorf("%s connections after two merges, and %s before", after, before)
	}
	if path, err := bloom.Write(t.Context(), w.conn, table, table.Path(f.Path, missing.Name)); err == nil {
		t.Errorf("filters of a file that is missing are in %q", path)
	}
}
