//go:build linux && cgo

package eventstore

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A TableInfo describes a table.
type TableInfo struct {
	Name    string
	Time    string // the time column; "" without one
	Version uint64 // of the schema
	Columns []ColumnInfo
}

// A ColumnInfo describes a column of a table or of a query's result.
type ColumnInfo = protocol.Column

// Tables describes the tables, sorted by name.
func (s *Store) Tables() []TableInfo { return tablesOf(s.current()) }

func tablesOf(m *manifest.Manifest) []TableInfo {
	var infos []TableInfo
	for _, t := range m.Tables {
		schema := t.Current()
		info := TableInfo{Name: t.Name, Time: t.Time, Version: schema.Version}
		for _, c := range schema.Columns {
			info.Columns = append(info.Columns, ColumnInfo{Name: c.Name, Type: c.SQLType()})
		}
		if schema.Rest {
			info.Columns = append(info.Columns, ColumnInfo{Name: restColumn, Type: "JSON"})
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b TableInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos
}

// A Catalog describes the tables of a store that may be open in another process.
type Catalog struct{ manifest *manifest.Manifest }

// ReadCatalog reads the tables of the store in folder. A folder without a store has no
// tables.
func ReadCatalog(folder string) (Catalog, error) {
	m, err := manifest.Load(folder)
	if errors.Is(err, os.ErrNotExist) {
		m, err = manifest.New(), nil
	}
	if err != nil {
		return Catalog{}, fmt.Errorf("eventstore: %w", explainDamage(err))
	}
	return Catalog{m}, nil
}

// Tables describes the tables, sorted by name.
func (c Catalog) Tables() []TableInfo { return tablesOf(c.manifest) }

// Check returns the error that Store.Table would return for a table, or Store.UseTable if
// want is nil.
func (c Catalog) Check(name string, want *TableConfig) error {
	err := errors.Join(CheckTableName(name), checkName(c.manifest, name))
	if err != nil || want == nil {
		return err
	}
	if t := c.manifest.Table(name); t != nil {
		_, err = schemaOf(t).declared(name, *want)
	} else {
		_, err = firstSchema(name, *want)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", name, err)
	}
	return nil
}

// Key returns the columns of a table's unique key, or nil if the table does not drop
// duplicates.
func (c Catalog) Key(table string) []string {
	if t := c.manifest.Table(table); t != nil && t.Unique != nil {
		return t.Unique.Key
	}
	return nil
}

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
	stats.Keys, stats.Bytes = u.set.Size()
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
		if err := wal.ReadFile(manifest.LogFolder(s.folder), end, func(e *wal.Entry, _ int64) {
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
