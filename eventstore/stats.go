//go:build linux && cgo

package eventstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// TableStats describes the contents of a table.
type TableStats struct {
	TableInfo
	Event     string        // the event column; "" without one
	Retention time.Duration // 0 if rows are kept forever
	// Files are the Parquet files, oldest day first. They may still have rows of running
	// deletes.
	Files     []FileStats
	LogRows   int64        // rows that are only in the log
	Unique    *UniqueStats // nil if rows may repeat
	Deletions []Deletion   // running deletes, oldest first
	// Recomputes holds the last recompute of each computed column, oldest first.
	Recomputes []Recompute
	// The minimum and maximum event time; zero without rows or a time column.
	MinTime, MaxTime time.Time
}

// UniqueStats describes the keys that a table has seen.
type UniqueStats struct {
	Unique
	Keys     int    // in memory; some may have left the window
	Bytes    int64  // memory that the keys take
	Repeated uint64 // rows dropped since the store was opened
}

// UniqueStats returns the key statistics of the tables that have a key, by table name.
func (s *Store) UniqueStats() map[string]UniqueStats {
	all := map[string]UniqueStats{}
	for _, t := range s.current().Tables {
		if live := s.tableByID(t.ID); live != nil && t.Unique != nil {
			if u := live.unique.Load(); u != nil {
				all[t.Name] = u.stats(t.Unique)
			}
		}
	}
	return all
}

func (u *uniqueKeys) stats(c *manifest.Unique) UniqueStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	stats := UniqueStats{Unique: Unique{Key: c.Key, Window: time.Duration(c.Window), Memory: c.Memory}, Repeated: u.repeated.Load()}
	stats.Keys, stats.Bytes = u.set.size()
	return stats
}

// FileStats describes a Parquet file.
type FileStats struct {
	Name             string // relative to the store's folder
	Segment          uint64
	Schema           uint64 // version
	Rows, Bytes      int64
	MinTime, MaxTime time.Time // zero without a time column
	Recomputing      string    // the first column still to be backfilled
}

// Stats describes the tables, sorted by name.
func (s *Store) Stats() ([]TableStats, error) {
	if s.isClosed() {
		return nil, ErrClosed
	}
	snapshot := s.snapshot()
	defer snapshot.release()
	byID := map[uint32]*TableStats{}
	for _, t := range snapshot.manifest.Tables {
		byID[t.ID] = newTableStats(t)
		if live := s.tableByID(t.ID); live != nil { // it was not dropped meanwhile
			byID[t.ID].Recomputes = s.recomputesOf(live, t)
		}
	}
	if err := s.addLog(snapshot, byID); err != nil {
		return nil, fmt.Errorf("eventstore: read the log: %w", err)
	}
	unique := s.UniqueStats()
	all := []TableStats{}
	for _, info := range tablesOf(snapshot.manifest) {
		stats := byID[snapshot.manifest.Table(info.Name).ID]
		stats.TableInfo = info
		if u, found := unique[info.Name]; found {
			stats.Unique = &u
		}
		all = append(all, *stats)
	}
	return all, nil
}

func newTableStats(t *manifest.Table) *TableStats {
	stats := &TableStats{Event: t.Event, Retention: time.Duration(t.Retention), Deletions: deletionsOf(t)}
	for _, f := range t.Files {
		file := FileStats{Name: path.Join("tables", t.DirName(), f.Name), Segment: f.Segment, Schema: f.Schema, Rows: f.Rows, Bytes: f.Bytes}
		if t.Time != "" {
			file.MinTime, file.MaxTime = time.UnixMicro(f.MinTime).UTC(), time.UnixMicro(f.MaxTime).UTC()
			stats.addTimes(file.MinTime, file.MaxTime)
		}
		if r := t.NextRecompute(f); r != nil {
			file.Recomputing = t.Current().ByID(r.Column).Name
		}
		stats.Files = append(stats.Files, file)
	}
	slices.SortStableFunc(stats.Files, func(a, b FileStats) int { return a.MinTime.Compare(b.MinTime) })
	return stats
}

func (t *TableStats) addTimes(least, greatest time.Time) {
	if t.MinTime.IsZero() || least.Before(t.MinTime) {
		t.MinTime = least
	}
	if greatest.After(t.MaxTime) {
		t.MaxTime = greatest
	}
}

// addLog adds the rows in the log.
func (s *Store) addLog(snapshot snapshot, tables map[uint32]*TableStats) error {
	for _, end := range snapshot.ends {
		if end.Number < snapshot.manifest.LogStart {
			continue
		}
		if err := readLogFile(manifest.LogFolder(s.folder), end, func(e *wal.Entry, _ int64) {
			t := tables[e.Table]
			if t == nil || e.Kind != wal.Rows || e.Columns == nil || e.Columns.Rows == 0 {
				return
			}
			t.LogRows += int64(e.Columns.Rows)
			if snapshot.manifest.TableByID(e.Table).Time != "" {
				t.addTimes(time.UnixMicro(e.MinTime).UTC(), time.UnixMicro(e.MaxTime).UTC())
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// readLogFile calls each for every entry of a log file, with the size of its frame in bytes.
// An entry is valid during the call.
func readLogFile(folder string, end wal.FileEnd, each func(e *wal.Entry, size int64)) error {
	r, err := wal.OpenReader(folder, end.Number)
	if errors.Is(err, fs.ErrNotExist) && len(end.Damaged) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	for _, damaged := range append(slices.Clone(end.Damaged), wal.Span{Begin: end.End, End: end.End}) {
		for {
			e, err := r.Next(damaged.Begin)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			each(e, r.FrameSize())
		}
		r.SeekTo(damaged.End)
	}
	return nil
}
