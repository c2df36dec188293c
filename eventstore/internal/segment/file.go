//go:build linux && cgo

package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/bloom"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
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
	// openGroupRows applies to files that are published in a lake. Other engines read such
	// groups faster. Their bytes are bounded as those of other files are: with 24 MiB, files
	// of long texts would need too much memory to be merged.
	openGroupRows = 122_880
	// dictionaryMax is the maximum number of distinct values in the dictionary of a row
	// group. A file with -0.0 has no dictionaries: DuckDB merges the two zeros in one.
	dictionaryMax = 4096
)

// writeFile writes the rows of a query, in its order, as a file of the table. f holds the day
// and the known properties of the rows; width is the approximate size of a row in bytes.
func (w *Writer) writeFile(t *manifest.Table, f manifest.File, query string, width int64) (_ manifest.File, err error) {
	f.Name, f.Segment, f.Schema, f.Format = w.out.nextName(f.Day), w.out.segment, t.Current().Version, manifest.FileFormat
	for _, deleted := range t.Deletes {
		f.Deleted = deleted.Number
	}
	folder := w.settings.Temp()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return f, err
	}
	temp := filepath.Join(folder, filepath.Base(f.Name))
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	f.Open, f.Fitted, f.Misfits, f.MisfitsWidened = t.Lake != nil, nil, 0, 0
	if err := w.conn.Exec(w.copySQL(t, query, temp, w.groupSize(t, width), w.out.Level, f.NegativeZero)); err != nil {
		return f, err
	}
	rows := int64(0)
	if rows, f.GroupRows, f.GroupBytes, err = w.measureFile(temp); err != nil {
		return f, err
	}
	if rows != f.Rows {
		return f, fmt.Errorf("file %s got %d rows instead of %d", f.Name, rows, f.Rows)
	}
	if t.Lake != nil {
		if err := w.countMisfits(t, &f, temp); err != nil {
			return f, err
		}
	}
	info, err := os.Stat(temp)
	if err != nil {
		return f, err
	}
	f.Bytes = info.Size()
	paths := []string{temp}
	bloom, err := bloom.Write(w.ctx, w.conn, t, temp)
	if err != nil {
		return f, err
	}
	if bloom != "" {
		f.Bloom = manifest.BloomName(f.Name)
		paths = append(paths, bloom)
	}
	w.out.publish(filepath.Dir(t.Path(w.settings.Folder, f.Name)), paths...)
	return f, nil
}

// measureFile returns the number of rows in a file, and the number of rows and uncompressed
// bytes of its largest row group.
func (w *Writer) measureFile(path string) (rows, groupRows, groupBytes int64, err error) {
	found, err := w.conn.Run("SELECT CAST(coalesce(sum(rows), 0) AS BIGINT), CAST(coalesce(arg_max(rows, bytes), 0) AS BIGINT), CAST(coalesce(max(bytes), 0) AS BIGINT) FROM " +
		"(SELECT any_value(row_group_num_rows) AS rows, sum(total_uncompressed_size) AS bytes FROM parquet_metadata(" + sqltext.Literal(path) + ") GROUP BY row_group_id)")
	if err != nil {
		return 0, 0, 0, err
	}
	return found[0][0].(int64), found[0][1].(int64), found[0][2].(int64), nil
}

// countMisfits records the field IDs of a file's columns for lake columns of another type, and
// the number of values that do not fit these: there they are null.
func (w *Writer) countMisfits(t *manifest.Table, f *manifest.File, path string) error {
	stored, hidden := tablesql.StoredColumns(t), tablesql.HiddenColumns(t)
	index := map[int32]int{}
	for i, h := range hidden {
		if index[h.ID] = len(stored) + i; manifest.IsFitted(h.ID) {
			f.Fitted = append(f.Fitted, h.ID)
		}
	}
	if len(f.Fitted) == 0 {
		return nil
	}
	found, err := w.conn.Run("SELECT column_id, CAST(sum(stats_null_count) AS BIGINT) FROM parquet_metadata(" + sqltext.Literal(path) + ") GROUP BY column_id")
	if err != nil {
		return err
	}
	nulls := map[int]int64{}
	for _, row := range found {
		nulls[int(row[0].(int64))] = row[1].(int64)
	}
	count := func(t *manifest.Table) (misfits int64) {
		for _, h := range tablesql.FittedColumns(t) {
			if of := slices.IndexFunc(stored, func(c manifest.Column) bool { return c.Name == h.Of }); of >= 0 {
				misfits += nulls[index[h.ID]] - nulls[of]
			}
		}
		return misfits
	}
	f.Misfits = count(t)
	if next := tablesql.Widened(t, 1); next != nil {
		f.MisfitsWidened = count(next)
	}
	return nil
}

// A groupSize bounds row groups.
type groupSize struct {
	rows  int
	bytes int64
}

// groupSize returns the bounds for a file of the table with rows of a width.
func (w *Writer) groupSize(t *manifest.Table, width int64) groupSize {
	size := groupSize{rowGroupRows, w.out.groupBytes}
	if t.Lake != nil {
		size.rows = openGroupRows
	}
	if width > wideRowBytes {
		size.bytes = min(size.bytes, wideGroupBytes)
	}
	return size
}

// copySQL returns a COPY of a query's rows to a file. It preserves their order, because a
// writer has one thread. The file has no bloom filters of DuckDB; see manifest.FileFormat. The
// encodings of Parquet V2 are smaller and faster, but not all engines read them.
func (w *Writer) copySQL(t *manifest.Table, query, path string, group groupSize, level int, negativeZero bool) string {
	dictionary := dictionaryMax
	if negativeZero {
		dictionary = 0
	}
	columns, version := tablesql.ColumnList(t), "V2"
	var ids []string
	for _, c := range tablesql.StoredColumns(t) {
		ids = append(ids, fmt.Sprintf("%s: %d", sqltext.QuoteName(c.Name), c.ID))
	}
	if t.Lake != nil {
		version = "V1"
		for _, hidden := range tablesql.HiddenColumns(t) {
			columns += ", " + hidden.SQL + " AS " + sqltext.QuoteName(hidden.Name)
			ids = append(ids, fmt.Sprintf("%s: %d", sqltext.QuoteName(hidden.Name), hidden.ID))
		}
	}
	return fmt.Sprintf("COPY (SELECT %s FROM (%s)) TO %s (FORMAT parquet, PARQUET_VERSION %s, COMPRESSION zstd, COMPRESSION_LEVEL %d, ROW_GROUP_SIZE %d, ROW_GROUP_SIZE_BYTES %d, DICTIONARY_SIZE_LIMIT %d, WRITE_BLOOM_FILTER false, FIELD_IDS {%s})",
		columns, query, sqltext.Literal(path), version, level, group.rows, group.bytes, dictionary, strings.Join(ids, ", "))
}
