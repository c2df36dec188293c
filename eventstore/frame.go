//go:build linux && cgo

package eventstore

import (
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// encode returns the log frame of an extracted output: its range and the given rows. The
// buffer owns the memory.
func (b *buffer) encode(p *Partition, of event.Range, rows rowRuns, now time.Time) []byte {
	entry := wal.Entry{
		Kind: wal.Rows, Table: p.table.id, Schema: b.schema.Version, Appended: now.UnixMicro(),
		Pipeline: p.key.pipeline, Partition: p.key.partition, Range: of,
	}
	columns := b.frameColumns()
	if rows.count() < columns.Rows {
		columns = selectRows(columns, rows)
	}
	if columns.Rows > 0 {
		entry.Columns, entry.IDs = columns, b.ids[:len(columns.Vectors)]
		entry.MinTime, entry.MaxTime = b.timeBounds(b.schema.time, columns)
	}
	b.frame = wal.AppendEntry(b.frame[:0], &entry)
	return b.frame
}

// frameColumns returns the columns, followed by _rest if a row has a value there.
func (b *buffer) frameColumns() *event.Columns {
	if len(b.rest.Null) == 0 {
		return &b.columns
	}
	return &event.Columns{
		Spec:    append(slices.Clip(b.columns.Spec), event.Column{Name: restColumn, Type: event.JSON}),
		Rows:    b.columns.Rows,
		Vectors: append(slices.Clip(b.columns.Vectors), b.rest),
	}
}

// microsOf converts nanoseconds to microseconds, rounding down.
func microsOf(nanos int64) int64 { return time.Unix(0, nanos).UnixMicro() }

// timeBounds returns the minimum and maximum event time in microseconds, or zeros without a
// time column. A time column has no nulls.
func (b *buffer) timeBounds(timeColumn string, columns *event.Columns) (least, greatest int64) {
	for i, c := range columns.Spec {
		if timeColumn != "" && c.Name == timeColumn {
			least, greatest = slices.Min(columns.Vectors[i].Ints), slices.Max(columns.Vectors[i].Ints)
			if c.Type == event.TimestampNS {
				least, greatest = microsOf(least), microsOf(greatest)
			}
			return least, greatest
		}
	}
	return 0, 0
}

// selectRows copies the given rows of columns.
func selectRows(columns *event.Columns, rows rowRuns) *event.Columns {
	selected := &event.Columns{Spec: columns.Spec, Rows: rows.count(), Vectors: make([]event.Vector, len(columns.Vectors))}
	for _, run := range rows {
		for i := range columns.Vectors {
			appendRows(&selected.Vectors[i], &columns.Vectors[i], run.first, run.end)
		}
	}
	return selected
}

// appendRows appends rows [first, end) of from to to.
func appendRows(to, from *event.Vector, first, end int) {
	to.Null = append(to.Null, from.Null[first:end]...)
	if len(from.Ints) > 0 {
		to.Ints = append(to.Ints, from.Ints[first:end]...)
	}
	if len(from.Floats) > 0 {
		to.Floats = append(to.Floats, from.Floats[first:end]...)
	}
	if len(from.Ends) == 0 {
		return
	}
	begin := uint32(0)
	if first > 0 {
		begin = from.Ends[first-1]
	}
	shift := uint32(len(to.Bytes)) - begin
	to.Bytes = append(to.Bytes, from.Bytes[begin:from.Ends[end-1]]...)
	for _, e := range from.Ends[first:end] {
		to.Ends = append(to.Ends, e+shift)
	}
}
