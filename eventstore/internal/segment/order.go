//go:build linux && cgo

package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// DuckDB's sort holds several copies of its rows, which exceeds a small memory limit if the
// rows are wide. This code therefore sorts only the sort keys of the log's rows. DuckDB then
// reads the rows in that order, in place in the mapped file.

const (
	// sortRowsMax is the maximum number of rows sorted at a time; more rows become
	// several files.
	sortRowsMax = 1 << 20
	// sortKeysMax bounds the distinct keys in memory, in bytes.
	sortKeysMax = 16 << 20
	// freeFrom is the number of rows from which the sorter's memory is freed before files
	// are written.
	freeFrom = 16_384
	// sortKeyMemory is the approximate overhead of a key, in bytes.
	sortKeyMemory = 112
)

// A sortedRow is a row of the log with its sort order: the key (its day and the columns
// before the event time) and the event time.
type sortedRow struct {
	time       int64 // from timeSQL; noTime if the row has none
	frame, row uint32
	key        uint32 // index in frameWriter.keys
}

// A sortKey is shared by rows that differ only in their time.
type sortKey struct {
	key         string // the day, and the columns before the event time
	day         int32
	rows        int
	first, last int64 // times; first > last if no row has one
}

const noTime = math.MaxInt64 // sorts last

// dayOf returns the day of a time, in days since 1970. Rows without a time belong to
// 1970-01-01.
func dayOf(time, perMicro int64) int32 {
	if time == noTime {
		return 0
	}
	return int32(tablesql.FloorDiv(tablesql.Micros(time, perMicro), tablesql.DayMicros))
}

// A frameWriter writes the rows of frames of one layout.
type frameWriter struct {
	writer *Writer
	table  *manifest.Table
	group  logscan.Group
	scan   *logscan.Scan // of all frames of the group
	files  []manifest.File

	perMicro int64 // see timeSQL

	rows     []sortedRow
	keys     []sortKey
	index    map[string]uint32 // index in keys, by key
	keyBytes int
	key      []byte // of the row being read
}

// WriteFrames writes the rows of a table's frames, sorted, as one file per day of event time.
func (w *Writer) WriteFrames(t *manifest.Table, frames []*logscan.Frame) (files []manifest.File, err error) {
	for _, group := range logscan.GroupFrames(t, frames) {
		f := &frameWriter{writer: w, table: t, group: group, index: map[string]uint32{}}
		err := f.write()
		files = append(files, f.files...)
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (f *frameWriter) write() error {
	scan, err := logscan.New(logscan.NextID(), f.group.Columns(f.table), f.group.Frames, nil)
	if err != nil {
		return err
	}
	f.scan = scan
	defer f.scan.Close()
	keys, err := f.writer.connect() // the writer's own connection writes files meanwhile
	if err != nil {
		return err
	}
	defer keys.Close()
	for begin := 0; begin < len(f.group.Frames); { // one run of frames with the same deletes at a time
		end, deletes := f.deletesOf(begin)
		if err := f.readKeys(keys, begin, end, deletes); err != nil {
			return err
		}
		begin = end
	}
	return f.writeRows()
}

// deletesOf returns the deletes that apply to a frame, and the end of the run of frames with
// the same deletes. A delete applies to all frames before its log position.
func (f *frameWriter) deletesOf(begin int) (end int, deletes []*manifest.Delete) {
	end = len(f.group.Frames)
	for _, d := range f.table.Deletes {
		if f.group.Frames[begin].Position.Compare(d.Before) >= 0 {
			continue
		}
		deletes = append(deletes, d)
		behind := func(g *logscan.Frame) bool { return g.Position.Compare(d.Before) >= 0 }
		if i := slices.IndexFunc(f.group.Frames[begin:end], behind); i >= 0 {
			end = begin + i
		}
	}
	return end, deletes
}

// readKeys reads the sort keys of some frames, and writes files once there are many.
func (f *frameWriter) readKeys(c *duckdb.Conn, begin, end int, deletes []*manifest.Delete) error {
	const place = "#place"
	scan, err := logscan.New(logscan.NextID(), append(f.group.Columns(f.table), logscan.PlaceColumn(place)), f.group.Frames[begin:end], nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	columns := tablesql.SortColumns(f.table)
	name, _ := tablesql.TimeColumn(f.table)
	if n := len(columns); n > 0 && columns[n-1] == name {
		columns = columns[:n-1]
	}
	at, perMicro := tablesql.Time(f.table)
	f.perMicro = perMicro
	part := tablesql.Part(f.table, scan.SQL(), f.group.Types, deletes, sqltext.QuoteName(place))
	return c.Stream("SELECT "+sqltext.QuoteName(place)+", "+at+", "+tablesql.SortKey(columns)+" FROM ("+part+")", func(batch arrow.RecordBatch) error {
		places, times, keys := batch.Column(0).(*array.Int64), batch.Column(1).(*array.Int64), batch.Column(2).(*array.Binary)
		for i := range places.Len() {
			row := sortedRow{frame: uint32(begin) + uint32(places.Value(i)>>32), row: uint32(places.Value(i)), time: noTime}
			if times.IsValid(i) {
				row.time = times.Value(i)
			}
			row.key = f.count(row.time, keys.Value(i))
			f.rows = append(f.rows, row)
		}
		if len(f.rows) >= sortRowsMax || f.keyBytes >= sortKeysMax {
			return f.writeRows()
		}
		return context.Cause(f.writer.ctx)
	})
}

// count adds a row to the sortKey of its day and key, and returns the index of that sortKey.
func (f *frameWriter) count(time int64, key []byte) uint32 {
	day := dayOf(time, f.perMicro)
	f.key = binary.BigEndian.AppendUint32(f.key[:0], uint32(day)^1<<31) // ordered as the days are
	f.key = append(f.key, key...)
	i, found := f.index[string(f.key)]
	if !found {
		i = uint32(len(f.keys))
		whole := string(f.key)
		f.index[whole] = i
		f.keys = append(f.keys, sortKey{key: whole, day: day, first: math.MaxInt64, last: math.MinInt64})
		f.keyBytes += len(whole) + sortKeyMemory
	}
	counted := &f.keys[i]
	counted.rows++
	if time != noTime {
		counted.first, counted.last = min(counted.first, time), max(counted.last, time)
	}
	return i
}

// sort returns the sort keys in order and fills order with their rows. The rows of a key
// arrive roughly in time order, so grouping them leaves little to sort.
func (f *frameWriter) sort(order logscan.Order) (keys []sortKey) {
	ranked := make([]uint32, len(f.keys))
	for i := range ranked {
		ranked[i] = uint32(i)
	}
	slices.SortFunc(ranked, func(a, b uint32) int { return strings.Compare(f.keys[a].key, f.keys[b].key) })
	next, begin := make([]int, len(f.keys)), 0 // position of the next row of each key
	for _, i := range ranked {
		next[i] = begin
		begin += f.keys[i].rows
	}
	sorted := make([]uint32, len(f.rows)) // indexes
	for i := range f.rows {
		key := f.rows[i].key
		sorted[next[key]] = uint32(i)
		next[key]++
	}
	begin = 0
	for _, i := range ranked {
		rows := sorted[begin:next[i]]
		slices.SortFunc(rows, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(f.rows[a].time, f.rows[b].time), cmp.Compare(a, b))
		})
		keys, begin = append(keys, f.keys[i]), next[i]
	}
	for i, row := range sorted {
		order.Set(i, f.rows[row].frame, f.rows[row].row)
	}
	return keys
}

// writeRows writes the rows whose keys were read, one file per day.
func (f *frameWriter) writeRows() error {
	order := logscan.NewOrder(len(f.rows))
	defer order.Free()
	var days []manifest.File
	keys := f.sort(order)
	for i, key := range keys {
		if i == 0 || key.day != keys[i-1].day {
			days = append(days, f.dayFile(key.day))
		}
		file := &days[len(days)-1]
		file.Rows += int64(key.rows)
		if key.first <= key.last {
			widen(file, tablesql.Micros(key.first, f.perMicro), tablesql.Micros(key.last, f.perMicro))
		}
	}
	many := len(f.rows) > freeFrom
	f.rows, f.keys, f.keyBytes, f.index = f.rows[:0], nil, 0, map[string]uint32{}
	if many {
		f.rows, keys = nil, nil
		debug.FreeOSMemory() // for DuckDB
	}
	begin := 0
	for _, file := range days {
		end := begin + int(file.Rows)
		f.scan.Show(order, begin, end)
		closeTimes(&file)
		file, err := f.writer.writeFile(f.table, file, tablesql.Part(f.table, f.scan.SQL(), f.group.Types, nil), f.group.Width())
		if err != nil {
			return err
		}
		f.files = append(f.files, file)
		begin = end
	}
	return nil
}

// dayFile returns the entry of a new file without rows.
func (f *frameWriter) dayFile(day int32) manifest.File {
	file := manifest.File{NegativeZero: slices.ContainsFunc(f.group.Frames, (*logscan.Frame).HasNegativeZero)}
	if tablesql.TimeType(f.table) != 0 {
		file.Day = time.Unix(int64(day)*24*60*60, 0).UTC().Format(time.DateOnly)
	}
	openTimes(&file)
	return file
}

// openTimes initializes the time range of a file for widen.
func openTimes(f *manifest.File) { f.MinTime, f.MaxTime = math.MaxInt64, math.MinInt64 }

// widen extends a file's time range.
func widen(f *manifest.File, least, greatest int64) {
	f.MinTime, f.MaxTime = min(f.MinTime, least), max(f.MaxTime, greatest)
}

// closeTimes sets the time range of a file to zero if none of its rows has a time.
func closeTimes(f *manifest.File) {
	if f.MinTime > f.MaxTime {
		f.MinTime, f.MaxTime = 0, 0
	}
}
