//go:build linux && cgo

package eventstore

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/publishing"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// Tables describes the tables, sorted by name.
func (s *Store) Tables() ([]catalog.Table, error) {
	if s.isClosed() {
		return nil, ErrClosed
	}
	snapshot := s.snapshot()
	defer snapshot.release()
	unique := s.UniqueStates()
	all := make([]catalog.Table, len(snapshot.manifest.Tables))
	byID := map[uint32]*catalog.Table{}
	for i, entry := range snapshot.manifest.Tables {
		all[i] = describe(entry)
		if entry.Lake != nil {
			state := s.lakeState(entry)
			all[i].Lake = &state
		}
		byID[entry.ID] = &all[i]
		if u, found := unique[entry.Name]; found {
			all[i].Unique = &u
		}
		if hasDeletesInLake(entry) {
			s.addFetchError(entry, all[i].Deletes)
		}
		if live := s.tableByID(entry.ID); live != nil { // it was not dropped meanwhile
			all[i].Recomputes = s.recomputesOf(live, entry)
		}
	}
	if err := s.addLog(snapshot, byID); err != nil {
		return nil, fmt.Errorf("eventstore: read the log: %w", err)
	}
	slices.SortFunc(all, func(a, b catalog.Table) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// describe describes what a manifest says about a table, without its recomputes.
func describe(t *manifest.Table) catalog.Table {
	d := catalog.Table{
		Name: t.Name, Event: t.Event, Time: t.Time, Retention: t.Retention, Schema: t.Current().Version,
		Files: []catalog.File{}, Columns: columnsOf(t.Current()), Deletes: deletesOf(t),
	}
	if t.Lake != nil {
		state := publishing.State(t, time.Now())
		d.Lake = &state
	}
	for _, f := range t.Files {
		file := catalog.File{Name: path.Join("tables", t.DirName(), f.Name), Schema: f.Schema, Rows: f.Rows, Bytes: f.Bytes}
		if t.Time != "" {
			file.Oldest, file.Newest = time.UnixMicro(f.MinTime).UTC(), time.UnixMicro(f.MaxTime).UTC()
			addTimes(&d, file.Oldest, file.Newest)
		}
		if r := t.NextRecompute(f); r != nil {
			file.Recomputing = t.Current().ByID(r.Column).Name
		}
		d.Rows += f.Rows
		d.Bytes += f.Bytes
		d.Files = append(d.Files, file)
	}
	slices.SortStableFunc(d.Files, func(a, b catalog.File) int { return a.Oldest.Compare(b.Oldest) })
	return d
}

func columnsOf(s *manifest.Schema) []catalog.Column {
	columns := []catalog.Column{}
	for _, c := range s.Columns {
		columns = append(columns, catalog.Column{Name: c.Name, Type: c.SQLType()})
	}
	if s.Rest {
		columns = append(columns, catalog.Column{Name: catalog.RestColumn, Type: "JSON"})
	}
	return columns
}

func addTimes(t *catalog.Table, oldest, newest time.Time) {
	if t.Oldest.IsZero() || oldest.Before(t.Oldest) {
		t.Oldest = oldest
	}
	if newest.After(t.Newest) {
		t.Newest = newest
	}
}

// LakeStates describes how far the tables with a lake are published.
func (s *Store) LakeStates() (all []catalog.LakeState) {
	for _, t := range s.current().Tables {
		if t.Lake != nil {
			all = append(all, s.lakeState(t))
		}
	}
	return all
}

// UniqueStates describes the keys of the tables with Unique, by table name.
func (s *Store) UniqueStates() map[string]catalog.UniqueState {
	all := map[string]catalog.UniqueState{}
	for _, t := range s.current().Tables {
		if live := s.tableByID(t.ID); live != nil && t.Unique != nil {
			if u := live.unique.Load(); u != nil {
				all[t.Name] = u.state(t.Unique)
			}
		}
	}
	return all
}

func (u *uniqueKeys) state(c *catalog.Unique) catalog.UniqueState {
	u.mu.Lock()
	defer u.mu.Unlock()
	state := catalog.UniqueState{Unique: *c, Repeated: u.repeated.Load()}
	state.Keys, state.Bytes = u.set.Size()
	return state
}

// addLog adds the rows in the log.
func (s *Store) addLog(snapshot snapshot, tables map[uint32]*catalog.Table) error {
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
			t.Rows += int64(e.Columns.Rows)
			if t.Time != "" {
				addTimes(t, time.UnixMicro(e.MinTime).UTC(), time.UnixMicro(e.MaxTime).UTC())
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// A Catalog describes the tables of a store that may be open in another process.
type Catalog struct {
	manifest *manifest.Manifest
	folder   string
}

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
	return Catalog{m, folder}, nil
}

// Check returns the error that Store.Table would return for a table, or Store.UseTable if
// want is nil.
func (c Catalog) Check(name string, want *TableConfig) error {
	err := errors.Join(CheckTableName(name), checkName(c.manifest, name))
	if err != nil || want == nil {
		return err
	}
	if want.Lake != nil {
		if err := checkLakeFolder(c.withLake(name, want.Lake), c.folder); err != nil {
			return err
		}
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

// withLake returns a table as it would be with a lake. One that was renamed keeps its name there.
func (c Catalog) withLake(name string, l *catalog.Lake) *manifest.Table {
	entry := &manifest.Table{Name: name}
	if have := c.manifest.Table(name); have != nil {
		known := *have
		entry = &known
	}
	entry.SetLake(l)
	return entry
}

// LakeUser returns another table that is published in the same table of a lake, or "".
func (c Catalog) LakeUser(name string, l *catalog.Lake) string {
	if l == nil {
		return ""
	}
	entry := c.withLake(name, l)
	for _, other := range c.manifest.Tables {
		if !strings.EqualFold(other.Name, name) && other.Lake != nil && entry.Lake.Lake.Shares(other.Lake.Lake) {
			return other.Name
		}
	}
	return ""
}

// Key returns the columns of a table's unique key, or nil if the table does not drop
// duplicates.
func (c Catalog) Key(table string) []string {
	if t := c.manifest.Table(table); t != nil && t.Unique != nil {
		return t.Unique.Key
	}
	return nil
}
