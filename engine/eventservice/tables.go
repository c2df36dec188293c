//go:build linux && cgo

package eventservice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/catalog"
	eventsink "github.com/perigeedb/perigee/sink/eventstore"
)

// Configure implements engine.Service: it applies the declared tables. If a declaration cannot
// be applied, the tables before it in the file may have changed.
func (s *Store) Configure(c *config.Config) error {
	if err := checkFunctions(c.Functions); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		for i := range c.Tables {
			if err := declareTable(s.opened, &c.Tables[i]); err != nil {
				return err
			}
		}
	}
	s.tables, s.writers = c.Tables, writersOf(c)
	return nil
}

// declareTables applies the declared tables to a newly opened store. If a declaration cannot
// be applied, the table stays unchanged and its pipelines report the reason; the others
// continue.
func (s *Store) declareTables() {
	for i := range s.tables {
		if err := declareTable(s.opened, &s.tables[i]); err != nil && s.log != nil {
			s.log.Warn("cannot apply the declaration of a table", "table", s.tables[i].Name, "error", err)
		}
	}
}

// declareTable creates a table, or applies its declaration.
func declareTable(store *eventstore.Store, t *config.Table) error {
	_, err := store.Table(t.Name, tableConfig(t))
	return t.At(err, event.HintOf(err))
}

// openTable returns a table for a pipeline.
func (s *Store) openTable(name string) (*eventstore.Table, error) {
	store, err := s.open()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := declaredAs(s.tables, name); t != nil {
		return store.Table(name, tableConfig(t))
	}
	known := store.FindTable(name) != nil
	t, err := store.UseTable(name)
	if err == nil && !known {
		s.undeclared[strings.ToLower(name)] = true
	}
	return t, err
}

// declaredAs returns the declaration of a table, or nil.
func declaredAs(tables []config.Table, name string) *config.Table {
	i := slices.IndexFunc(tables, func(t config.Table) bool { return strings.EqualFold(t.Name, name) })
	if i < 0 {
		return nil
	}
	return &tables[i]
}

// tableConfig converts a declaration, which has been checked.
func tableConfig(t *config.Table) eventstore.TableConfig {
	c := eventstore.TableConfig{
		Event: t.Event, Time: t.Time, TimeUnit: unit(t.TimeUnit), Retention: t.Retention, Sort: t.Sort, Bloom: t.Bloom,
		Unique: t.Unique, Unknown: t.Unknown,
	}
	if t.Lake.Warehouse != "" {
		c.Lake = &t.Lake
	}
	for _, column := range t.Columns {
		c.Columns = append(c.Columns, tableColumn(&column))
	}
	for _, computed := range t.Computed {
		column := tableColumn(&config.Column{Name: computed.Name, Type: computed.Type})
		column.Path = []string{computed.Name} // a name may contain dots
		c.Columns = append(c.Columns, column)
	}
	return c
}

func tableColumn(c *config.Column) event.Column {
	field := c.Field
	if field == "" {
		field = c.Name
	}
	base, digits, _ := strings.Cut(c.Type, "(")
	kind, _ := event.ParseType(base)
	column := event.Column{Name: c.Name, Path: strings.Split(field, "."), Type: kind, Unit: unit(c.Unit), Required: c.Required}
	fmt.Sscanf(digits, "%d,%d", &column.Digits.Precision, &column.Digits.Scale)
	return column
}

// DescribeColumns implements engine.ColumnService: it fills in the declared columns of the table
// that a sink of the store writes, and what becomes of fields without a column.
func (s *Store) DescribeColumns(c *config.Config, of *engine.StageSink) {
	var settings eventsink.Config
	if of.Config.Kind != eventsink.Name || of.Config.Decode(&settings) != nil {
		return
	}
	t := declaredAs(c.Tables, settings.Table)
	if t == nil {
		return
	}
	of.Columns = declaredColumns(t)
	of.Documents = of.Columns != nil && t.Unknown != catalog.DropUnknown
	if of.Documents && t.Unknown == catalog.KeepUnknown {
		of.Rest = catalog.RestColumn
	}
}

// declaredColumns returns the columns that a row brings along, and not those that the table
// computes.
func declaredColumns(t *config.Table) (columns []event.Column) {
	timed := t.Time == ""
	for _, column := range t.Columns {
		one := tableColumn(&column)
		if column.Name == t.Time {
			timed, one.Required, one.Unit = true, true, cmp.Or(one.Unit, unit(t.TimeUnit))
		}
		columns = append(columns, one)
	}
	if !timed {
		one := event.Column{Name: t.Time, Path: []string{t.Time}, Type: event.Timestamp, Unit: unit(t.TimeUnit), Required: true}
		if one.Unit == event.Nanoseconds {
			one.Type = event.TimestampNS
		}
		columns = append([]event.Column{one}, columns...)
	}
	return columns
}

// unit returns the unit of that name, or the default.
func unit(name string) event.Unit {
	u, _ := event.ParseUnit(name)
	return u
}

// reportUndeclared logs a declaration that fits the first events of a table, if this store
// has created the table and the configuration does not declare it. It reports each table
// once.
func (s *Store) reportUndeclared(table string, out *event.Output) {
	s.mu.Lock()
	name := strings.ToLower(table)
	report := s.undeclared[name] && s.log != nil
	delete(s.undeclared, name)
	s.mu.Unlock()
	if !report {
		return
	}
	docs := make([][]byte, min(out.Len(), undeclaredRowsMax))
	for i := range docs {
		docs[i] = out.Doc(i)
	}
	declaration := inferDeclaration(table, "", docs)
	if declaration == "" {
		s.log.Info("created an undeclared table with the columns of its events", "table", table)
		return
	}
	s.log.Warn("created an undeclared table; its times are text", "table", table, "declare", declaration,
		"hint", "add this declaration to the configuration; perigee check then names the commands that apply it to the table")
}
