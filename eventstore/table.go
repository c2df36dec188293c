//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A TableConfig declares the settings and columns of a table.
type TableConfig struct {
	// Time names the column that holds the event's own time; "" means none. Every event
	// must have its field: RFC 3339 text, or a number in TimeUnit. Unless Columns
	// declares the column, its type is Timestamp, or TimestampNS if TimeUnit is
	// Nanoseconds.
	Time     string
	TimeUnit event.Unit
	// Event names the column that holds the event's name; "" means none. Files are sorted
	// by it, and queries skip files by it.
	Event string
	// Retention is the age, by event time, at which rows expire. 0 keeps them forever.
	Retention time.Duration
	// Sort names the columns that files are sorted by; default Event and Time.
	Sort []string
	// Bloom names columns that get a bloom filter in every file, as the event column
	// does. Searches for rare values then read only the files that may have them.
	Bloom []string
	// Unknown selects the handling of undeclared fields; AddUnknown infers a column for
	// each.
	Unknown catalog.Unknown
	// Columns are the declared columns. Values that do not fit one are rejected. A
	// declared column may be a field inside an object.
	Columns []event.Column
	// Unique drops duplicate rows by key. Without a key it drops none. Without a Memory,
	// it may use 256 MiB.
	Unique catalog.Unique
	// Lake is where the table is published as an Iceberg table; nil does not publish it.
	Lake *catalog.Lake
}

// A Table is a table of a store.
type Table struct {
	store *Store
	id    uint32
	name  atomic.Pointer[string]

	// restructuring is read-locked by appends and write-locked while the table is
	// restructured. It protects dropped.
	restructuring sync.RWMutex
	dropped       bool

	mu         sync.Mutex
	schema     *schema // the newest; the manifest may not have it yet
	partitions map[partKey]*partitionState
	// The schema versions that running appends use, and those in the frames of each log
	// file. The manifest keeps these versions.
	encoding  map[uint64]int
	schemasOf map[uint64]map[uint64]bool

	unique       atomic.Pointer[uniqueKeys] // nil if the table has no key
	spareBuffers chan *buffer               // free buffers

	computed  atomic.Pointer[[]ComputedColumn]
	computing inFlight // appends that may have used computed and whose frames are not in the log yet
}

// CheckTableName returns an *event.PermanentError if name is not a valid table name.
func CheckTableName(name string) error {
	if hint := sqltext.TableNameHint(name); hint != "" {
		return configError(hint, "invalid table name %q", name)
	}
	return nil
}

// loadTable returns the table described by a manifest entry.
func loadTable(s *Store, m *manifest.Table) *Table {
	t := &Table{
		store: s, id: m.ID, schema: schemaOf(m),
		partitions: map[partKey]*partitionState{}, encoding: map[uint64]int{}, schemasOf: map[uint64]map[uint64]bool{},
		spareBuffers: make(chan *buffer, 8),
	}
	t.name.Store(&m.Name)
	for _, p := range m.Partitions {
		t.state(partKey{p.Pipeline, p.Partition}).sealed = p.Committed()
	}
	return t
}

// Name returns the table's name.
func (t *Table) Name() string { return *t.name.Load() }

// TimeColumn returns the name of the column of the event's time, or "".
func (t *Table) TimeColumn() string { return t.current().time }

// Table returns the named table with the settings of c and at least its columns. It creates
// the table if it is missing. It returns an *event.PermanentError if the table cannot have
// these settings or columns.
func (s *Store) Table(name string, c TableConfig) (*Table, error) {
	return s.openTable(name, &c)
}

// UseTable returns the named table unchanged. If it is missing, UseTable creates it without
// settings.
func (s *Store) UseTable(name string) (*Table, error) { return s.openTable(name, nil) }

// FindTable returns the named table, or nil if it is missing.
func (s *Store) FindTable(name string) *Table { return s.tableNamed(name) }

// openTable returns the named table, configured with c if c is not nil.
func (s *Store) openTable(name string, c *TableConfig) (*Table, error) {
	if err := CheckTableName(name); err != nil {
		return nil, err
	}
	if s.isClosed() {
		return nil, ErrClosed
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	t := s.tableNamed(name)
	err := checkName(s.current(), name)
	switch {
	case err != nil:
	case t == nil && c == nil:
		t, err = s.createTable(name, TableConfig{})
	case t == nil:
		t, err = s.createTable(name, *c)
	case c != nil:
		err = t.configure(*c)
	}
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	return t, nil
}

// checkName returns an error if name, from a configuration, differs in case from a table's
// name or is reserved by a renamed table.
func checkName(m *manifest.Manifest, name string) error {
	if t := m.Table(name); t != nil && t.Name != name {
		return configError("SQL does not distinguish names by case", "table %s already exists", t.Name)
	}
	if t := m.FormerTable(name); t != nil {
		return configError(fmt.Sprintf("write to table %s; or free the name for a new table: perigee table rename %s %s --release", t.Name, name, t.Name),
			"table %s is called %s now", name, t.Name)
	}
	return nil
}

// tableByID returns the table with that ID, or nil.
func (s *Store) tableByID(id uint32) *Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if t.id == id {
			return t
		}
	}
	return nil
}

// tableNamed returns the table of that name, ignoring case as SQL does, or nil.
func (s *Store) tableNamed(name string) *Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[strings.ToLower(name)]
}

// firstSchema returns the schema of a new table.
func firstSchema(name string, c TableConfig) (*schema, error) {
	none := newSchema()
	none.time = c.Time
	first, err := none.declared(name, c)
	if err == nil {
		first.Version = 1
	}
	return first, err
}

func (s *Store) createTable(name string, c TableConfig) (*Table, error) {
	first, err := firstSchema(name, c)
	if err != nil {
		return nil, err
	}
	entry := &manifest.Table{Name: name, NextColumn: first.nextColumn, Schemas: []*manifest.Schema{&first.Schema}}
	c.apply(entry)
	if err := checkLakeFolder(entry, s.folder); err != nil {
		return nil, err
	}
	var t *Table
	err = s.change(func(next *manifest.Manifest) error {
		next.AddTable(entry)
		if err := checkLake(next, entry); err != nil {
			return err
		}
		t = loadTable(s, entry)
		if err := t.setUnique(entry); err != nil {
			return err
		}
		s.setTable(name, t) // before a reader of the manifest looks for it
		return nil
	}, nil)
	if err != nil {
		s.setTable(name, nil)
		return nil, err
	}
	s.warnIfHidden(name)
	return t, nil
}

// setTable sets or removes the table of that name.
func (s *Store) setTable(name string, t *Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t == nil {
		delete(s.tables, strings.ToLower(name))
	} else {
		t.setComputed(s.computed[strings.ToLower(name)])
		s.tables[strings.ToLower(name)] = t
	}
}

// apply copies the settings, but not the columns, into a manifest entry.
func (c *TableConfig) apply(t *manifest.Table) {
	t.Time, t.Event, t.Retention = c.Time, c.Event, catalog.Duration(c.Retention)
	t.Sort, t.Bloom, t.Unknown, t.Unique = c.Sort, c.Bloom, c.Unknown, c.unique()
	t.SetLake(c.Lake)
}

// checkUnique checks the key settings against the table's columns.
func (c *TableConfig) checkUnique(s *schema) error {
	if len(c.Unique.Key) == 0 {
		return nil
	}
	if err := checkWindow(time.Duration(c.Unique.Window)); err != nil {
		return err
	}
	_, err := keyColumns(&s.Schema, c.Unique.Key)
	return err
}

// configure applies a configuration to an existing table.
func (t *Table) configure(c TableConfig) error {
	wanted, err := t.declare(c)
	if err != nil {
		return err
	}
	if err := t.installSchema(context.Background(), wanted); err != nil {
		return err
	}
	have := *t.store.current().TableByID(t.id)
	wants := have
	wants.Files = slices.Clone(have.Files)
	c.apply(&wants)
	if reflect.DeepEqual(have, wants) {
		return nil
	}
	if err := cmp.Or(checkLakeFolder(&wants, t.store.folder), checkLake(t.store.current(), &wants)); err != nil {
		return err
	}
	if l := have.Lake; l != nil && (wants.Lake == nil || !wants.Lake.IsAt(l.Lake)) {
		t.warnOfDeletes(&have)
	}
	wants.Schemas = []*manifest.Schema{&wanted.Schema}
	if err := t.setUnique(&wants); err != nil {
		return err
	}
	return t.store.change(func(next *manifest.Manifest) error {
		entry := next.TableByID(t.id)
		c.apply(entry)
		wake(t.store.publisher)
		return checkLake(next, entry)
	}, nil)
}

// isInFolder reports whether files of a lake are in a folder: its warehouse, its catalog, or the table that
// is below the warehouse.
func isInFolder(l catalog.Lake, folder string) bool {
	places := []string{l.Warehouse}
	if scheme, rest, _ := strings.Cut(l.Catalog, ":"); scheme == "sqlite" {
		places = append(places, "/"+strings.TrimLeft(rest, "/"))
	}
	names := strings.Split(l.Table, ".")
	namespace, name := names[:len(names)-1], names[len(names)-1]
	places = append(places, filepath.Join(l.Warehouse, filepath.Join(namespace...), name), filepath.Join(l.Warehouse, strings.Join(namespace, ".")+".db", name))
	return slices.ContainsFunc(places, func(place string) bool {
		inside, err := filepath.Rel(realPath(folder), realPath(place))
		return filepath.IsAbs(place) && err == nil && inside != ".." && !strings.HasPrefix(inside, "../")
	})
}

// realPath returns a path without the symbolic links in the part of it that exists.
func realPath(path string) string {
	path, err := filepath.Abs(path)
	if real, failed := filepath.EvalSymlinks(path); err != nil || failed == nil || path == filepath.Dir(path) {
		return cmp.Or(real, path)
	}
	return filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path))
}

// warnOfDeletes logs the deletes of a table that leaves its lake table before this has carried them out.
func (t *Table) warnOfDeletes(have *manifest.Table) {
	if l := have.Lake; len(l.Purges)+len(have.Deletes) > 0 {
		t.store.options.Log.Warn("event store: deletes of the table are not carried out in the lake table that it had, which may have the rows: drop that table with its files, or expire its snapshots",
			"table", have.Name, "lake table", l.Table, "warehouse", l.Warehouse, "deletes", len(l.Purges)+len(have.Deletes))
	}
}

// checkLakeFolder refuses a table that is to be published in the folder of the store. It looks at the
// disk of the lake, which may be slow: the caller must hold no lock that others need.
func checkLakeFolder(t *manifest.Table, folder string) error {
	if t.Lake != nil && isInFolder(t.Lake.Lake, folder) {
		return configError("choose a folder outside of the data folder", "the lake of table %s is in %s, the folder of the event store, which removes files there that it does not know", t.Name, folder)
	}
	return nil
}

// checkLake refuses a table that is to be published where another one is.
func checkLake(m *manifest.Manifest, t *manifest.Table) error {
	if other := m.SharesLake(t); other != nil {
		return configError("set another lake.table for one of them", "tables %s and %s would both be published as %s", other.Name, t.Name, t.Lake.Table)
	}
	return nil
}

// declare adds the declared columns to the newest schema and returns the result.
func (t *Table) declare(c TableConfig) (*schema, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, err := t.schema.declared(t.Name(), c)
	if err != nil {
		return nil, err
	}
	if next.Version != t.schema.Version || next.unknown != t.schema.unknown {
		t.schema = next
	}
	return t.schema, nil
}

// declared returns the schema with the declared columns. It keeps the version if no column
// changes.
func (s *schema) declared(table string, c TableConfig) (*schema, error) {
	if s.time != c.Time {
		return nil, configError(TimeHint(table, c), "the time column is %q, but the table has %q", c.Time, s.time)
	}
	next := s.clone()
	next.unknown = c.Unknown
	if err := declareColumns(next, c); err != nil {
		if conflict, ok := errors.AsType[*columnConflict](err); ok {
			return nil, configError(conflict.hint(table, c), "%s", conflict.Error())
		}
		return nil, err
	}
	if err := c.checkUnique(next); err != nil {
		return nil, err
	}
	if slices.EqualFunc(next.Columns, s.Columns, sameColumn) {
		next.Version = s.Version
	}
	return next, nil
}

// TimeHint returns a hint for setting the time column of a configuration.
func TimeHint(table string, c TableConfig) string {
	set := "--none"
	if c.Time != "" {
		set = c.Time
		if c.TimeUnit != event.Seconds {
			set += " --unit " + c.TimeUnit.String()
		}
		for _, column := range c.Columns {
			if column.Name == c.Time && column.Unit != event.Seconds {
				set += " --unit " + column.Unit.String()
			}
			if column.Name == c.Time && column.Type == event.TimestampNS {
				set += " --type timestamp_ns"
			}
		}
	}
	return fmt.Sprintf("give the table that time column: perigee table set-time %s %s; or begin again: perigee table drop %[1]s", table, set)
}

// A columnConflict is a column of a table that differs from its declaration.
type columnConflict struct {
	want event.Column
	have column
}

func (e *columnConflict) Error() string {
	return fmt.Sprintf("column %s is declared as %s of field %s, but the table has it as %s of field %s", e.want.Name,
		e.want.Type.String()+e.want.Digits.String(), strings.Join(e.want.Path, "."), e.have.Type.String()+e.have.Digits.String(), strings.Join(e.have.Path, "."))
}

// hint returns a hint for resolving the conflict.
func (e *columnConflict) hint(table string, c TableConfig) string {
	if strings.EqualFold(e.have.Name, c.Time) && slices.Equal(e.want.Path, e.have.Path) {
		return TimeHint(table, c)
	}
	return fmt.Sprintf("a column keeps its type: declare it under another name; or drop its values: perigee table drop-column %s %s", table, e.have.Name)
}

func sameColumn(a, b column) bool {
	return a.ID == b.ID && a.Type == b.Type && a.Required == b.Required && a.Unit == b.Unit && a.Declared == b.Declared
}

// declareColumns adds the columns of a configuration to s.
func declareColumns(s *schema, c TableConfig) error {
	declared := slices.Clone(c.Columns)
	hasTime := false
	for i, column := range declared {
		if len(column.Path) == 0 || column.Name == "" || strings.EqualFold(column.Name, catalog.RestColumn) {
			return configError("a column needs a name, which is not _rest, and a field",
				"column %q of field %q", column.Name, strings.Join(column.Path, "."))
		}
		if c.Time != "" && strings.EqualFold(column.Name, c.Time) {
			if column.Name != c.Time || column.Type != event.Timestamp && column.Type != event.TimestampNS {
				return configError("declare it as timestamp or timestamp_ns, or leave it out",
					"the time column %s is declared as %s of type %s", c.Time, column.Name, column.Type)
			}
			declared[i].Required, hasTime = true, true
			declared[i].Unit = cmp.Or(column.Unit, c.TimeUnit)
		}
	}
	if len(declared) > columnsMax {
		return configError("leave out columns of the same name and type as the field: they are inferred",
			"%d columns are declared, and a table has at most %d", len(declared), columnsMax)
	}
	if c.Time != "" && !hasTime {
		kind := event.Timestamp
		if c.TimeUnit == event.Nanoseconds {
			kind = event.TimestampNS
		}
		declared = append([]event.Column{{Name: c.Time, Path: []string{c.Time}, Type: kind, Unit: c.TimeUnit, Required: true}}, declared...)
	}
	return s.declare(declared)
}

// current returns the newest schema.
func (t *Table) current() *schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.schema
}

// growSchema widens the newest schema for the report of an extraction with s. It returns the
// newest schema, which is s if s is the newest and fits.
func (t *Table) growSchema(s *schema, report document.Report, b *buffer) *schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.schema == s {
		t.schema = s.grownFor(report, &b.columns, b.spec)
	}
	return t.schema
}

// versionsMax is the number of schema versions that a log file may have before it is closed.
// A query unites the rows of each version, and the manifest holds all versions.
const versionsMax = 64

// installSchema adds a schema version to the manifest, before the first frame that uses it.
func (t *Table) installSchema(ctx context.Context, s *schema) error {
	if t.store.current().TableByID(t.id).Schema(s.Version) != nil {
		return nil
	}
	if t.versionsInLog() >= versionsMax {
		if err := t.store.log.Rotate(ctx); err != nil {
			return err
		}
	}
	return t.store.change(func(next *manifest.Manifest) error {
		entry := next.TableByID(t.id)
		if entry.Schema(s.Version) != nil {
			return nil
		}
		at := len(entry.Schemas)
		for at > 0 && entry.Schemas[at-1].Version > s.Version {
			at--
		}
		entry.Schemas = slices.Insert(entry.Schemas, at, &s.Schema)
		entry.NextColumn = max(entry.NextColumn, s.nextColumn)
		return nil
	}, nil)
}

// versionsInLog returns the number of schema versions in the log, summed over its files.
func (t *Table) versionsInLog() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, versions := range t.schemasOf {
		n += len(versions)
	}
	return n
}

// acquireBuffer returns a buffer owned by the caller.
func (t *Table) acquireBuffer() *buffer {
	select {
	case b := <-t.spareBuffers:
		return b
	default:
		return &buffer{}
	}
}

func (t *Table) releaseBuffer(b *buffer) {
	select {
	case t.spareBuffers <- b:
	default:
	}
}
