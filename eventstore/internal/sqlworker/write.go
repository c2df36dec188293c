//go:build linux && cgo

package sqlworker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// Parquet files are written, and read by a merge, one row group at a time. The size of row
// groups bounds the memory for both, independent of the size of files and rows.
const (
	// rowGroupRows is the number of rows in a row group. A row group is the smallest unit
	// that is read of a file. Smaller groups make searches for few rows faster and full
	// scans slower.
	rowGroupRows = 16_384
	// rowGroupBytes bounds row groups. wideGroupBytes bounds those of rows wider than
	// wideRowBytes: a reader holds 2,048 rows or a whole row group in memory, several
	// times over. leastGroupBytes applies to rows that are that large or larger each.
	rowGroupBytes   = 12 << 20
	wideGroupBytes  = 4 << 20
	wideRowBytes    = 4 << 10
	leastGroupBytes = 1 << 20
	// dictionaryMax is the maximum number of distinct values in the dictionary of a row
	// group. A file with -0.0 has no dictionaries: DuckDB merges the two zeros in one.
	dictionaryMax = 4096
)

// writeSegment writes the rows of a closed log file as Parquet files, one per table and day.
func (w *worker) writeSegment(ctx context.Context, q *protocol.Segment, in *job) error {
	m, err := w.manifests.load(q.Version)
	if err != nil {
		return err
	}
	log, err := w.log.open(q.Log.Number, []wal.FileEnd{q.Log})
	if err != nil {
		return err
	}
	defer log.close()
	written := []protocol.Written{}
	out := newOutput(q.Number, q.Wide)
	out.level = sealLevel
	for _, t := range m.Tables {
		frames := log.of(t.ID)
		if len(frames) == 0 {
			continue
		}
		files, err := w.writeFrames(ctx, t, frames, out)
		if err != nil {
			return errors.Join(fmt.Errorf("table %s: %w", t.Name, err), out.abandon())
		}
		for _, f := range files {
			f.Log = q.Log.Number
			written = append(written, protocol.Written{Table: t.ID, File: f})
		}
	}
	if err := out.wait(); err != nil {
		return errors.Join(err, out.abandon())
	}
	if err := in.out.WriteJSON(protocol.FilesMessage, written); err != nil {
		return err
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

// newWriteSession takes a database for writing files.
func (w *worker) newWriteSession(ctx context.Context) (*session, error) {
	return w.newSession(ctx, w.settings.Memory*3/4)
}

// explainWrite returns an error that tells the user why writing ended.
func (s *session) explainWrite(err error) error {
	s.failed = true
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	if duckdb.IsOutOfMemory(err) || err == protocol.ErrQueryMemory {
		return protocol.ErrMemory
	}
	return err
}

// timeColumn returns the name and type of the time column, or "" if the table has none.
func timeColumn(t *manifest.Table) (name string, kind event.Type) {
	for _, c := range t.Current().Columns {
		if t.Time != "" && strings.EqualFold(c.Name, t.Time) && (c.Type == event.Timestamp || c.Type == event.TimestampNS) {
			return c.Name, c.Type
		}
	}
	return "", 0
}

// timeType returns the type of the time column, or 0 without one.
func timeType(t *manifest.Table) event.Type {
	_, kind := timeColumn(t)
	return kind
}

// timeSQL returns SQL for the event time of a row and the number of its units per
// microsecond, which is 0 for a table without a time column.
func timeSQL(t *manifest.Table) (sql string, perMicro int64) {
	switch name, kind := timeColumn(t); kind {
	case event.Timestamp:
		return "epoch_us(" + sqltext.QuoteName(name) + ")", 1
	case event.TimestampNS:
		return "epoch_ns(" + sqltext.QuoteName(name) + ")", 1000
	}
	return "CAST(0 AS BIGINT)", 0
}

// An output collects the files of one segment. Files are synced while the next ones are
// written: with a file for each of many days, most of the time goes to waiting for the disk.
type output struct {
	segment    uint64
	parts      int // files written so far
	groupBytes int64
	level      int // zstd level
	syncing    errgroup.Group
	published  []string // paths
}

// The zstd levels. Appends wait for sealing, and its files are soon merged, so sealing uses a
// fast level. Level 3 makes event files 4 % smaller than level 1 and takes a sixth longer.
const (
	sealLevel  = 1
	mergeLevel = 3
)

// syncsMax is the maximum number of files that are synced concurrently.
const syncsMax = 16

func newOutput(segment uint64, wide bool) *output {
	o := &output{segment: segment, groupBytes: rowGroupBytes, level: mergeLevel}
	if wide {
		o.groupBytes = leastGroupBytes
	}
	o.syncing.SetLimit(syncsMax)
	return o
}

// nextName returns the name of the segment's next file.
func (o *output) nextName(day string) string {
	o.parts++
	return manifest.FileName(day, o.segment, o.parts-1)
}

// publish moves a file and its companions to their folder and starts to sync them. wait waits
// for the syncs.
func (o *output) publish(folder string, paths ...string) {
	for _, path := range paths {
		o.published = append(o.published, filepath.Join(folder, filepath.Base(path)))
	}
	o.syncing.Go(func() error { return moveDurably(folder, paths) })
}

// wait waits until all files are durable.
func (o *output) wait() error { return o.syncing.Wait() }

// abandon removes the files, which no manifest will list.
func (o *output) abandon() (err error) {
	_ = o.wait()
	for _, path := range o.published {
		if failed := os.Remove(path); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// moveDurably moves files to a folder. When it returns, the files and their names are
// durable.
func moveDurably(folder string, paths []string) error {
	if err := durable.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, path := range paths {
		if err := syncFile(path); err != nil {
			return err
		}
		if err := os.Rename(path, filepath.Join(folder, filepath.Base(path))); err != nil {
			return err
		}
	}
	return durable.SyncDir(folder)
}

func syncFile(path string) error {
	file, err := durable.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// writeFile writes the rows of a query, in its order, as a file of the table. f holds the day
// and the known properties of the rows; width is the approximate size of a row in bytes.
func (s *session) writeFile(t *manifest.Table, f manifest.File, query string, width int64, out *output) (_ manifest.File, err error) {
	f.Name, f.Segment, f.Schema, f.Format = out.nextName(f.Day), out.segment, t.Current().Version, manifest.FileFormat
	for _, deleted := range t.Deletes {
		f.Deleted = deleted.Number
	}
	folder := s.worker.settings.Temp()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return f, err
	}
	temp := filepath.Join(folder, filepath.Base(f.Name))
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	groupBytes := out.groupBytes
	if width > wideRowBytes {
		groupBytes = min(groupBytes, wideGroupBytes)
	}
	if err := s.conn.Exec(s.copySQL(t, query, temp, groupBytes, out.level, f.NegativeZero)); err != nil {
		return f, err
	}
	rows := int64(0)
	if rows, f.GroupRows, f.GroupBytes, err = s.measureFile(temp); err != nil {
		return f, err
	}
	if rows != f.Rows {
		return f, fmt.Errorf("file %s got %d rows instead of %d", f.Name, rows, f.Rows)
	}
	info, err := os.Stat(temp)
	if err != nil {
		return f, err
	}
	f.Bytes = info.Size()
	paths := []string{temp}
	bloom, err := s.writeBloom(t, temp)
	if err != nil {
		return f, err
	}
	if bloom != "" {
		f.Bloom = manifest.BloomName(f.Name)
		paths = append(paths, bloom)
	}
	out.publish(filepath.Dir(t.Path(s.worker.settings.Folder, f.Name)), paths...)
	return f, nil
}

// measureFile returns the number of rows in a file, and the number of rows and uncompressed
// bytes of its largest row group.
func (s *session) measureFile(path string) (rows, groupRows, groupBytes int64, err error) {
	found, err := s.conn.Run("SELECT CAST(coalesce(sum(rows), 0) AS BIGINT), CAST(coalesce(arg_max(rows, bytes), 0) AS BIGINT), CAST(coalesce(max(bytes), 0) AS BIGINT) FROM " +
		"(SELECT any_value(row_group_num_rows) AS rows, sum(total_uncompressed_size) AS bytes FROM parquet_metadata(" + sqltext.Literal(path) + ") GROUP BY row_group_id)")
	if err != nil {
		return 0, 0, 0, err
	}
	return found[0][0].(int64), found[0][1].(int64), found[0][2].(int64), nil
}

// copySQL returns a COPY of a query's rows to a file. It preserves their order, because a
// writer has one thread. The file has no bloom filters of DuckDB; see manifest.FileFormat.
func (s *session) copySQL(t *manifest.Table, query, path string, groupBytes int64, level int, negativeZero bool) string {
	dictionary := dictionaryMax
	if negativeZero {
		dictionary = 0
	}
	var ids []string
	for _, c := range storedColumns(t) {
		ids = append(ids, fmt.Sprintf("%s: %d", sqltext.QuoteName(c.Name), c.ID))
	}
	return fmt.Sprintf("COPY (SELECT %s FROM (%s)) TO %s (FORMAT parquet, PARQUET_VERSION V2, COMPRESSION zstd, COMPRESSION_LEVEL %d, ROW_GROUP_SIZE %d, ROW_GROUP_SIZE_BYTES %d, DICTIONARY_SIZE_LIMIT %d, WRITE_BLOOM_FILTER false, FIELD_IDS {%s})",
		columnList(t), query, sqltext.Literal(path), level, s.worker.settings.RowGroup, groupBytes, dictionary, strings.Join(ids, ", "))
}

// storedColumns returns the columns in files of the newest schema.
func storedColumns(t *manifest.Table) []manifest.Column {
	return slices.DeleteFunc(shown(t.Current()), func(c manifest.Column) bool { return c.Type == 0 })
}

func columnList(t *manifest.Table) string {
	var names []string
	for _, c := range storedColumns(t) {
		names = append(names, c.Name)
	}
	return quotedList(names)
}

func quotedList(names []string) string {
	var list []string
	for _, name := range names {
		list = append(list, sqltext.QuoteName(name))
	}
	return strings.Join(list, ", ")
}

// sortColumns returns the columns that a table's files are sorted by.
func sortColumns(t *manifest.Table) (names []string) {
	wanted := t.Sort
	if len(wanted) == 0 {
		wanted = []string{t.Event, t.Time}
	}
	for _, name := range wanted {
		for _, c := range t.Current().Columns {
			if name != "" && strings.EqualFold(c.Name, name) && c.Type != 0 {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// sortKeySQL returns SQL for a BLOB that sorts rows by the given columns.
func sortKeySQL(columns []string) string {
	var list strings.Builder
	for _, name := range columns {
		list.WriteString(sqltext.QuoteName(name) + ", 'ASC NULLS LAST', ")
	}
	return "create_sort_key(" + list.String() + "'', 'ASC NULLS LAST')" // with a text, it is a BLOB for all types
}

// checkPredicate returns an error unless the predicate is valid for a delete: one
// deterministic expression over the columns of a table.
func (w *worker) checkPredicate(ctx context.Context, q *protocol.Check, in *job) error {
	ctx, stop := withTimeLimit(ctx, 10*time.Second)
	defer stop()
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	s, err := w.newSession(ctx, protocol.MemoryDefault)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.createView(t, selection{}); err != nil {
		return err
	}
	if err := s.checkPredicate(t, q.Predicate); err != nil {
		s.failed = true
		return err
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

func (s *session) checkPredicate(t *manifest.Table, predicate string) error {
	begin := "SELECT 1 FROM " + sqltext.QuoteName(t.Name) + " WHERE "
	sql := begin + predicate
	parsed, err := statement.Parse(s.conn, sql)
	if err != nil {
		return predicateError(begin, sql, err)
	}
	if parsed == nil {
		return predicateError(begin, sql, s.conn.Exec(sql))
	}
	if err := parsed.CheckOffsets([]*manifest.Table{t}, nil); err != nil {
		return predicateError(begin, sql, err)
	}
	if err := parsed.CheckPredicate(t.Name); err != nil {
		return err
	}
	if _, err := s.conn.Run(sql); err != nil {
		return predicateError(begin, sql, err)
	}
	described, err := s.conn.Run("SELECT column_type FROM (DESCRIBE SELECT (" + predicate + "\n) FROM main." + sqltext.QuoteName(t.Name) + ")")
	if err == nil && described[0][0] != "BOOLEAN" {
		return &protocol.QueryError{Message: fmt.Sprintf("the predicate is %v, not BOOLEAN", described[0][0]), Hint: "compare the column with a value"}
	}
	return duckdb.ExplainError(err, "")
}

// predicateError converts positions in the whole statement to positions in the predicate.
func predicateError(begin, sql string, err error) error {
	if err == nil {
		return nil
	}
	err = duckdb.ExplainError(err, sql)
	if q, ok := errors.AsType[*protocol.QueryError](err); ok && q.Line == 1 {
		q.Column = max(q.Column-len(begin), 1)
	}
	return err
}
