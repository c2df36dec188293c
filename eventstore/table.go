//go:build cgo

package eventstore

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

// A TableConfig says what a table must have.
type TableConfig struct {
	// Time names the column of the event's own time, whose field must be there
	// in every event: RFC 3339, or Unix seconds. "" means that the table has none.
	Time string
	// Columns are declared: what does not fit one is refused. A declared column
	// may lie inside an object. Fields that are not declared are inferred.
	Columns []event.Column
}

// A Table is a table of a store.
type Table struct {
	store *Store
	name  string
	time  string

	mu      sync.Mutex
	schema  *schema // the newest; the writer may not have stored it yet
	visible *schema // what queries see

	spareBuffers chan *buffer // free ones

	// The writer's own.
	stored     uint64     // version of the newest schema in the store
	segments   []*segment // in the store, oldest first
	partitions map[partKey]*partitionState
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// CheckTableName returns an *event.PermanentError if no table can have the name.
func CheckTableName(name string) error {
	if !tableName.MatchString(name) {
		return configError("use up to 63 letters, digits and underscores, not a digit first", "invalid table name %q", name)
	}
	return nil
}

func newTable(s *Store, name, time string) *Table {
	return &Table{
		store: s, name: name, time: time, schema: &schema{},
		spareBuffers: make(chan *buffer, 8), partitions: map[partKey]*partitionState{},
	}
}

// Table returns the table of that name, made if it is missing, with at least
// the columns of c. An *event.PermanentError says why it cannot have them.
func (s *Store) Table(name string, c TableConfig) (*Table, error) {
	if err := CheckTableName(name); err != nil {
		return nil, err
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	t, fresh := s.table(name, c.Time)
	err := t.configure(name, c)
	if err == nil {
		err = s.inTransaction(context.Background(), t.create)
	}
	if err != nil {
		if fresh {
			s.mu.Lock()
			delete(s.tables, strings.ToLower(name))
			s.mu.Unlock()
		}
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	return t, nil
}

// table finds a table or begins one.
func (s *Store) table(name, time string) (t *Table, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.ToLower(name)
	if t := s.tables[key]; t != nil {
		return t, false
	}
	s.tables[key] = newTable(s, name, time)
	return s.tables[key], true
}

// create brings the table into the store. It may run again after it has.
func (t *Table) create(tx *conn) (func(), error) {
	const once = `INSERT INTO perigee.tables SELECT ?, ? WHERE NOT EXISTS (FROM perigee.tables WHERE name = ?)`
	if _, err := tx.run(once, t.name, t.time, t.name); err != nil {
		return nil, err
	}
	_, after, err := t.installSchema(tx, t.current())
	return after, err
}

// configure holds the table against what is wanted of it.
func (t *Table) configure(name string, c TableConfig) error {
	if t.name != name {
		return configError("SQL does not distinguish names by case", "table %s already exists", t.name)
	}
	if t.time != c.Time {
		return configError("a table keeps its time column: write to another table",
			"the time column is %q, but the table has %q", c.Time, t.time)
	}
	for _, column := range c.Columns {
		if len(column.Path) == 0 || column.Name == "" || strings.EqualFold(column.Name, restColumn) {
			return configError("a column needs a name, which is not _rest, and a field",
				"column %q of field %q", column.Name, strings.Join(column.Path, "."))
		}
	}
	if len(c.Columns) > columnsMax {
		return configError("leave out columns of the same name and type as the field: they are inferred",
			"%d columns are declared, and a table has at most %d", len(c.Columns), columnsMax)
	}
	declared := c.Columns
	if c.Time != "" && !(&schema{Columns: columnsOf(declared)}).has(c.Time) {
		declared = append([]event.Column{{Name: c.Time, Path: []string{c.Time}, Type: event.Timestamp, Required: true}}, declared...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.schema.clone()
	if err := next.declare(declared); err != nil {
		return err
	}
	if t.schema.Version == 0 || next.encode() != t.schema.encode() {
		t.schema = next
	}
	return nil
}

func columnsOf(declared []event.Column) []column {
	var columns []column
	for _, c := range declared {
		columns = append(columns, column{Name: c.Name})
	}
	return columns
}

func (s *schema) has(name string) bool { return s.find(name) >= 0 }

// load reads what the store has of the table. What is newer here is kept.
func (t *Table) load() error {
	versions, err := t.loadSchemas()
	if err != nil {
		return err
	}
	if err := t.loadSegments(versions); err != nil {
		return err
	}
	for key, part := range t.partitions {
		done, err := t.readRanges(t.store.write, key)
		if err != nil {
			return err
		}
		part.committed = withoutPrints(done)
	}
	return nil
}

func (t *Table) loadSchemas() (map[uint64]*schema, error) {
	rows, err := t.store.write.run(`SELECT version, content FROM perigee.schemas WHERE name = ? ORDER BY version`, t.name)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	versions := map[uint64]*schema{}
	t.visible, t.stored = nil, 0
	for _, row := range rows {
		s, err := decodeSchema(row[0].(uint64), row[1].(string))
		if err != nil {
			return nil, err
		}
		versions[s.Version], t.visible, t.stored = s, s, s.Version
		if s.Version > t.schema.Version {
			t.schema = s
		}
	}
	return versions, nil
}

func (t *Table) loadSegments(versions map[uint64]*schema) error {
	rows, err := t.store.write.run(`SELECT number, version FROM perigee.segments WHERE name = ? ORDER BY number`, t.name)
	if err != nil {
		return err
	}
	t.segments = nil
	for _, row := range rows {
		g := &segment{number: row[0].(uint64), schema: versions[row[1].(uint64)]}
		count, err := t.store.write.run(`SELECT count(*) FROM ` + g.name())
		if err != nil {
			return err
		}
		g.rows = count[0][0].(int64)
		t.segments = append(t.segments, g)
		t.store.segments = max(t.store.segments, g.number)
	}
	return nil
}

// installSchema brings the store to version s of the schema, inside a transaction. It
// returns the segment that takes rows of that version, and what to do once the
// transaction has been committed.
func (t *Table) installSchema(tx *conn, s *schema) (active *segment, after func(), err error) {
	segments := t.segments
	if s.Version == t.stored {
		return segments[len(segments)-1], func() {}, nil
	}
	if _, err := tx.run(`INSERT INTO perigee.schemas VALUES (?, ?, ?)`, t.name, s.Version, s.encode()); err != nil {
		return nil, nil, err
	}
	if len(segments) == 0 || !s.sameLayout(segments[len(segments)-1].schema) {
		// Another table of the same commit may need a number too. One that is
		// lost with its transaction does no harm.
		t.store.segments++
		if segments, err = t.startSegment(tx, &segment{number: t.store.segments, schema: s}); err != nil {
			return nil, nil, err
		}
	}
	if err := tx.exec(viewSQL(t.name, s, segments)); err != nil {
		return nil, nil, err
	}
	after = func() {
		t.stored, t.segments = s.Version, segments
		t.mu.Lock()
		t.visible = s
		t.mu.Unlock()
	}
	return segments[len(segments)-1], after, nil
}

func (t *Table) startSegment(tx *conn, g *segment) ([]*segment, error) {
	if err := tx.exec(g.createSQL()); err != nil {
		return nil, err
	}
	if _, err := tx.run(`INSERT INTO perigee.segments VALUES (?, ?, ?)`, t.name, g.number, g.schema.Version); err != nil {
		return nil, err
	}
	older := t.segments[:len(t.segments):len(t.segments)]
	if n := len(older); n > 0 && older[n-1].rows <= foldRows {
		last := older[n-1]
		older = older[: n-1 : n-1]
		if err := tx.exec(g.foldSQL(last)); err != nil {
			return nil, err
		}
		// The view must let go of the old segment before it can be dropped.
		if err := tx.exec(viewSQL(t.name, g.schema, append(older, g))); err != nil {
			return nil, err
		}
		if err := tx.exec(`DROP TABLE ` + last.name()); err != nil {
			return nil, err
		}
		if _, err := tx.run(`DELETE FROM perigee.segments WHERE number = ?`, last.number); err != nil {
			return nil, err
		}
		g.rows = last.rows
	}
	return append(older, g), nil
}

func (t *Table) current() *schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.schema
}

// growSchema makes room for what an extraction with s met. It returns the newest
// schema, which is s when s is the newest and has room.
func (t *Table) growSchema(s *schema, report document.Report, d *buffer) *schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.schema == s {
		t.schema = s.grownFor(report, &d.columns, d.spec)
	}
	return t.schema
}

// info describes the table as queries see it; not ok when they do not yet.
func (t *Table) info() (info TableInfo, ok bool) {
	t.mu.Lock()
	s := t.visible
	t.mu.Unlock()
	if s == nil {
		return info, false
	}
	info = TableInfo{Name: t.name, Time: t.time, Version: s.Version}
	for _, c := range s.Columns {
		info.Columns = append(info.Columns, ColumnInfo{Name: c.Name, Type: c.sqlType()})
	}
	if s.Rest {
		info.Columns = append(info.Columns, ColumnInfo{Name: restColumn, Type: "JSON"})
	}
	return info, true
}
