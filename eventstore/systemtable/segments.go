package systemtable

import (
	"path"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A Segment is a row of the system table segments.
type Segment struct {
	Table   string     `json:"table_name" sql:"VARCHAR" doc:"the table whose rows they are"`
	Kind    string     `json:"kind" sql:"VARCHAR" doc:"parquet or log"`
	File    string     `json:"file" sql:"VARCHAR" doc:"path in the folder of the event store"`
	Segment *uint64    `json:"segment,omitempty" sql:"UBIGINT" doc:"number of the segment that the file belongs to; null in the log"`
	Day     string     `json:"day,omitempty" sql:"DATE" doc:"day of event time, in UTC; null in the log, and if the table has no time column"`
	Rows    int64      `json:"rows" sql:"BIGINT" doc:"rows in it, including those of running deletes"`
	Bytes   int64      `json:"bytes" sql:"BIGINT" doc:"bytes in the file; of a file of the log, those that are the table's"`
	Oldest  *time.Time `json:"oldest,omitempty" sql:"TIMESTAMP" doc:"least event time; null if the table has no time column"`
	Newest  *time.Time `json:"newest,omitempty" sql:"TIMESTAMP" doc:"greatest event time"`
	Schema  *uint64    `json:"schema_version,omitempty" sql:"UBIGINT" doc:"version of the table's schema; null in the log, which has several"`
	Bloom   bool       `json:"bloom" sql:"BOOLEAN" doc:"it has a bloom filter"`
	// Recomputing is null once all recomputes of the file are done.
	Recomputing string `json:"recomputing,omitempty" sql:"VARCHAR" doc:"first computed column that a recompute still has to fill; null in the log"`
}

// Segments yields the rows of the system table segments: the files in a manifest, and the log up
// to the given ends.
func Segments(folder string, m *manifest.Manifest, ends []wal.FileEnd, yield func(any, error) bool) {
	for _, t := range m.Tables {
		for _, f := range t.Files {
			row := Segment{
				Table: t.Name, Kind: "parquet", File: path.Join("tables", t.DirName(), f.Name), Segment: &f.Segment, Day: f.Day,
				Rows: f.Rows, Bytes: f.Bytes, Schema: &f.Schema, Bloom: f.Bloom != "",
			}
			row.addTimes(t, f.MinTime, f.MaxTime)
			if r := t.NextRecompute(f); r != nil {
				row.Recomputing = t.Current().ByID(r.Column).Name
			}
			if !yield(row, nil) {
				return
			}
		}
	}
	for _, end := range ends {
		rows, err := logSegments(folder, m, end)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// logSegments returns a row for each table that has rows in a log file.
func logSegments(folder string, m *manifest.Manifest, end wal.FileEnd) (rows []*Segment, err error) {
	if end.Number < m.LogStart {
		return nil, nil
	}
	byTable := map[uint32]*Segment{}
	name := path.Join("log", path.Base(wal.Path("log", end.Number)))
	err = wal.ReadFile(manifest.LogFolder(folder), end, func(e *wal.Entry, size int64) {
		t := m.TableByID(e.Table)
		if t == nil || e.Kind != wal.Rows || e.Columns == nil || e.Columns.Rows == 0 {
			return
		}
		row := byTable[e.Table]
		if row == nil {
			row = &Segment{Table: t.Name, Kind: "log", File: name}
			byTable[e.Table], rows = row, append(rows, row)
		}
		row.Rows += int64(e.Columns.Rows)
		row.Bytes += size
		row.addTimes(t, e.MinTime, e.MaxTime)
	})
	return rows, err
}

// addTimes widens the time range of a row to include least and greatest, in microseconds.
func (r *Segment) addTimes(t *manifest.Table, least, greatest int64) {
	if t.Time == "" {
		return
	}
	oldest, newest := time.UnixMicro(least).UTC(), time.UnixMicro(greatest).UTC()
	if r.Oldest == nil || oldest.Before(*r.Oldest) {
		r.Oldest = &oldest
	}
	if r.Newest == nil || newest.After(*r.Newest) {
		r.Newest = &newest
	}
}
