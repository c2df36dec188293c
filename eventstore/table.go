//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A TableConfig says what a table must have.
type TableConfig struct {
	// Time names the column of the event's own time, whose field must be there
	// in every event: RFC 3339, or a number of TimeUnit. "" means that the table has none. The
	// column is of type Timestamp, with TimeUnit Nanoseconds of type TimestampNS, unless Columns
	// declares it.
	Time     string
	TimeUnit event.Unit
	// Event names the column of the event's name, by which files are sorted and found.
	// "" means that the table has none.
	Event string
	// Retention is the age, by the event's own time, from which on rows are removed. 0
	// keeps them for ever.
	Retention time.Duration
	// Sort names the columns that files are sorted by; without names, Event and Time.
	Sort []string
	// Bloom names columns that have a bloom filter in every file, as the event column has:
	// searches for rare values read only the files that may have them.
	Bloom []string
	// Unknown says what becomes of fields that are not declared: AddUnknown infers a
	// column for each.
	Unknown Unknown
	// Columns are declared: what does not fit one is refused. A declared column
	// may lie inside an object.
	Columns []event.Column
	// Unique drops rows whose key was seen before; without a key it drops none.
	Unique Unique
}

// Unknown says what becomes of fields without a column.
type Unknown = manifest.Unknown

const (
	AddUnknown  = manifest.AddUnknown  // each gets a column, whose type is inferred
	KeepUnknown = manifest.KeepUnknown // they stand in the JSON column _rest
	DropUnknown = manifest.DropUnknown // they are not stored
)

// A Table is a table of a store.
type Table struct {
	store *Store
	id    uint32
	name  atomic.Pointer[string]

	// restructuring is held for reading by what appends, and for writing while the table is
	// restructured. dropped is under it.
	restructuring sync.RWMutex
	dropped       bool

	mu         sync.Mutex
	schema     *schema // the newest; the manifest may not have it yet
	partitions map[partKey]*partitionState
	// Which versions of the schema appends are using now, and which the frames in a file
	// of the log have: the manifest keeps these.
	encoding  map[uint64]int
	schemasOf map[uint64]map[uint64]bool

	unique       atomic.Pointer[uniqueKeys] // nil if the table has no key
	spareBuffers chan *buffer               // free ones

	computed  atomic.Pointer[[]ComputedColumn]
	computing inFlight // appends that may have used computed, until their frames are in the log
}

// CheckTableName returns an *event.PermanentError if no table can have the name.
func CheckTableName(name string) error {
	if hint := sqltext.TableNameHint(name); hint != "" {
		return configError(hint, "invalid table name %q", name)
	}
	return nil
}

// loadTable returns a table as the manifest has it.
func loadTable(s *Store, m *manifest.Table) *Table {
	t := &Table{
		store: s, id: m.ID, schema: schemaOf(m),
		partitions: map[partKey]*partitionState{}, encoding: map[uint64]int{}, schemasOf: map[uint64]map[uint64]bool{},
		spareBuffers: make(chan *buffer, 8),
	}
	t.name.Store(&m.Name)
	for _, p := range m.Partitions {
		state := t.state(partKey{p.Pipeline, p.Partition})
		state.committed, state.sealed = p.Committed(), p.Committed()
	}
	return t
}

// Name returns the table's name.
func (t *Table) Name() string { return *t.name.Load() }

// Table returns the table of that name, made if it is missing, with the settings of c
// and at least its columns. An *event.PermanentError says why it cannot have them.
func (s *Store) Table(name string, c TableConfig) (*Table, error) {
	return s.openTable(name, &c)
}

// UseTable returns the table of that name as it is, or made without settings.
func (s *Store) UseTable(name string) (*Table, error) { return s.openTable(name, nil) }

// openTable returns a table, with what c says of it if c is not nil.
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

// checkName returns an error if a table that a configuration names cannot be the one of that
// name: another has it, or has had it.
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

// tableByID returns the table of that number, or nil.
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

// tableNamed returns the table of that name, which SQL compares without case, or nil.
func (s *Store) tableNamed(name string) *Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[strings.ToLower(name)]
}

// firstSchema returns the schema of a table that is made.
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
	var t *Table
	err = s.change(func(next *manifest.Manifest) error {
		next.AddTable(entry)
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

// apply sets what a configuration says of a table beside its columns.
func (c *TableConfig) apply(t *manifest.Table) {
	t.Time, t.Event, t.Retention = c.Time, c.Event, manifest.Duration(c.Retention)
	t.Sort, t.Bloom, t.Unknown, t.Unique = c.Sort, c.Bloom, c.Unknown, c.Unique.manifest()
}

// checkUnique checks the settings of the key with the table's columns.
func (c *TableConfig) checkUnique(s *schema) error {
	if len(c.Unique.Key) == 0 {
		return nil
	}
	if err := c.Unique.check(); err != nil {
		return err
	}
	_, err := keyColumns(&s.Schema, c.Unique.Key)
	return err
}

// configure holds the table against what is wanted of it.
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
	c.apply(&wants)
	if reflect.DeepEqual(have, wants) {
		return nil
	}
	wants.Schemas = []*manifest.Schema{&wanted.Schema}
	if err := t.setUnique(&wants); err != nil {
		return err
	}
	return t.store.change(func(next *manifest.Manifest) error {
		c.apply(next.TableByID(t.id))
		return nil
	}, nil)
}

// declare brings the newest schema to what is declared, and returns it.
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

// declared returns the schema of a table with what is declared, under the same version if no
// column changes.
func (s *schema) declared(table string, c TableConfig) (*schema, error) {
	if s.time != c.Time {
		return nil, configError(timeHint(table, c), "the time column is %q, but the table has %q", c.Time, s.time)
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

// timeHint says how a table gets the time column of a configuration.
func timeHint(table string, c TableConfig) string {
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

// A columnConflict is a column that a table has otherwise than it is declared.
type columnConflict struct {
	want event.Column
	have column
}

func (e *columnConflict) Error() string {
	return fmt.Sprintf("column %s is declared as %s of field %s, but the table has it as %s of field %s", e.want.Name,
		e.want.Type.String()+e.want.Digits.String(), strings.Join(e.want.Path, "."), e.have.Type.String()+e.have.Digits.String(), strings.Join(e.have.Path, "."))
}

// hint says how the table gets the column.
func (e *columnConflict) hint(table string, c TableConfig) string {
	if strings.EqualFold(e.have.Name, c.Time) && slices.Equal(e.want.Path, e.have.Path) {
		return timeHint(table, c)
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
		if len(column.Path) == 0 || column.Name == "" || strings.EqualFold(column.Name, restColumn) {
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

// growSchema makes room for what an extraction with s met. It returns the newest
// schema, which is s when s is the newest and has room.
func (t *Table) growSchema(s *schema, report document.Report, b *buffer) *schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.schema == s {
		t.schema = s.grownFor(report, &b.columns, b.spec)
	}
	return t.schema
}

// versionsMax is how many versions of a table's schema the log may have before its file is
// closed: a query unites the rows of each, and the manifest has them all.
const versionsMax = 64

// installSchema brings a version of the schema into the manifest, before the first frame
// has it.
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

// versionsInLog returns how many versions of the schema the files of the log have, counted
// for each file.
func (t *Table) versionsInLog() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, versions := range t.schemasOf {
		n += len(versions)
	}
	return n
}

// A buffer is used for one output at a time.
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
