//go:build linux && cgo

package eventservice

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/pipeline"
	eventsink "github.com/perigeedb/perigee/sink/eventstore"
)

// DropTable removes a table with its rows, settings and positions. If the configuration of a
// running engine declares the table, the engine creates it again, without rows.
func DropTable(ctx context.Context, data, table string) (madeAgain bool, err error) {
	return do(ctx, data, "/tables/drop", TableChange{Table: table}, dropTable)
}

func dropTable(ctx context.Context, s *eventstore.Store, c TableChange) (bool, error) {
	return false, s.DropTable(ctx, c.Table)
}

// RenameTable renames a table, which keeps its positions. Unless c.Release, the old name stays
// reserved: no new table can have it.
func RenameTable(ctx context.Context, data string, c TableChange) error {
	_, err := do(ctx, data, "/tables/rename", c, renameTable)
	return err
}

func renameTable(ctx context.Context, s *eventstore.Store, c TableChange) (struct{}, error) {
	return struct{}{}, s.RenameTable(ctx, c.Table, c.To, c.Release)
}

// SetTableTime sets or removes the time column of a table. When it returns, queries and events
// use the column. WaitDivided waits until each file holds one day.
func SetTableTime(ctx context.Context, data string, c TableChange) error {
	_, err := do(ctx, data, "/tables/set-time", c, setTableTime)
	return err
}

func setTableTime(ctx context.Context, s *eventstore.Store, c TableChange) (struct{}, error) {
	column := eventstore.TimeColumn{Name: c.Column, Unit: unit(c.Unit)}
	if c.Type != "" {
		column.Type, _ = event.ParseType(c.Type)
	}
	return struct{}{}, s.SetTime(ctx, c.Table, column)
}

// WaitDivided returns once each file of a table holds the rows of one day.
func WaitDivided(ctx context.Context, data, table string) error {
	_, err := do(ctx, data, "/tables/divided", TableChange{Table: table}, waitDivided)
	return err
}

func waitDivided(ctx context.Context, s *eventstore.Store, c TableChange) (struct{}, error) {
	return struct{}{}, s.WaitDivided(ctx, c.Table)
}

// DropColumn removes a column of a table with its values.
func DropColumn(ctx context.Context, data, table, column string) error {
	_, err := do(ctx, data, "/tables/drop-column", TableChange{Table: table, Column: column}, dropColumn)
	return err
}

func dropColumn(ctx context.Context, s *eventstore.Store, c TableChange) (struct{}, error) {
	return struct{}{}, s.DropColumn(ctx, c.Table, c.Column)
}

// handleChanges adds the routes that change the tables of a running engine.
func (s *Store) handleChanges(handle handleFunc) {
	handle("POST /tables/drop", handleJSON(s, func(ctx context.Context, store *eventstore.Store, c TableChange) (bool, error) {
		_, err := changeTable(ctx, s, store, c, s.refuseDrop, dropTable)
		return s.isDeclared(c.Table), err
	}))
	handle("POST /tables/rename", handleJSON(s, func(ctx context.Context, store *eventstore.Store, c TableChange) (struct{}, error) {
		return changeTable(ctx, s, store, c, s.refuseRename, renameTable)
	}))
	handle("POST /tables/set-time", handleJSON(s, func(ctx context.Context, store *eventstore.Store, c TableChange) (struct{}, error) {
		return changeTable(ctx, s, store, c, s.refuseSetTime, setTableTime)
	}))
	handle("POST /tables/drop-column", handleJSON(s, func(ctx context.Context, store *eventstore.Store, c TableChange) (struct{}, error) {
		return changeTable(ctx, s, store, c, s.refuseDropColumn, dropColumn)
	}))
	handle("POST /tables/divided", handleJSON(s, waitDivided))
}

// changeTable runs an operation unless refuse returns an error, and then applies the declared
// tables, which creates a dropped table again.
func changeTable[Out any](ctx context.Context, s *Store, store *eventstore.Store, c TableChange,
	refuse func(context.Context, TableChange) error, operate operation[TableChange, Out]) (out Out, err error) {
	if err = refuse(ctx, c); err != nil {
		return out, err
	}
	if out, err = operate(ctx, store, c); err != nil {
		return out, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declareTables()
	return out, nil
}

// declaration returns the declaration of a table in the running engine's configuration, or nil.
func (s *Store) declaration(table string) *config.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.tables, func(t config.Table) bool { return strings.EqualFold(t.Name, table) })
	if i < 0 {
		return nil
	}
	t := s.tables[i]
	return &t
}

func (s *Store) isDeclared(table string) bool { return s.declaration(table) != nil }

// writersTo returns the pipelines that write to a table.
func (s *Store) writersTo(table string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writers[strings.ToLower(table)]
}

// refuseDrop returns an error if a running pipeline writes to the table.
func (s *Store) refuseDrop(ctx context.Context, c TableChange) error {
	all, err := s.host.Status(ctx)
	if err != nil {
		return err
	}
	writers := s.writersTo(c.Table)
	for _, p := range all {
		idle := p.Open == 0 && (p.State == pipeline.Paused || p.State == pipeline.Stopped)
		if slices.Contains(writers, p.Pipeline) && !idle {
			return event.WithHint(fmt.Errorf("pipeline %s writes to table %s", p.Pipeline, c.Table),
				fmt.Sprintf("pause it first: perigee pause %s. After perigee resume it stores the events that its source still has", p.Pipeline))
		}
	}
	return nil
}

// refuseRename returns an error if the configuration names the table, because its pipelines
// would not find it under the old name.
func (s *Store) refuseRename(_ context.Context, c TableChange) error {
	use := ""
	if writers := s.writersTo(c.Table); len(writers) > 0 {
		use = "pipeline " + writers[0] + " writes to it"
	} else if s.isDeclared(c.Table) {
		use = "it declares the table"
	} else {
		return nil
	}
	return event.WithHint(fmt.Errorf("the configuration of the running engine names table %s: %s", c.Table, use),
		fmt.Sprintf("stop the engine, rename the table, and write %s in the configuration", c.To))
}

// refuseSetTime returns an error if the configuration declares another time column.
func (s *Store) refuseSetTime(_ context.Context, c TableChange) error {
	if t := s.declaration(c.Table); t != nil && !strings.EqualFold(t.Time, c.Column) {
		return event.WithHint(fmt.Errorf("the configuration of the running engine declares the time column %q for table %s", t.Time, t.Name),
			"stop the engine, set the time column, and change time of the table in the configuration")
	}
	return nil
}

// refuseDropColumn returns an error if the column matches its declaration in the configuration.
func (s *Store) refuseDropColumn(_ context.Context, c TableChange) error {
	t := s.declaration(c.Table)
	if t == nil || !slices.ContainsFunc(t.Columns, func(column config.Column) bool { return strings.EqualFold(column.Name, c.Column) }) {
		return nil
	}
	catalog, err := eventstore.ReadCatalog(s.folder)
	if err != nil {
		return err
	}
	wanted := tableConfig(t)
	if catalog.Check(t.Name, &wanted) != nil { // the declaration cannot be applied
		return nil
	}
	return event.WithHint(fmt.Errorf("the configuration of the running engine declares column %s of table %s", c.Column, t.Name),
		"remove it from columns of the table in the configuration, and reload the engine: kill -HUP")
}

// writersOf returns the pipelines of a configuration that write to tables of the event store, by
// the lower-case name of the table.
func writersOf(c *config.Config) map[string][]string {
	writers := map[string][]string{}
	for _, p := range c.Pipelines {
		for _, sink := range p.Sinks {
			if table := tableOf(&sink); table != "" {
				table = strings.ToLower(table)
				writers[table] = append(writers[table], p.Name)
			}
		}
	}
	return writers
}

// tableOf returns the table of a sink, or "" for another kind of sink.
func tableOf(s *config.Sink) string {
	var c eventsink.Config
	if s.Kind != eventsink.Name || s.Decode(&c) != nil {
		return ""
	}
	return c.Table
}

// Uses lists the uses of a table in a configuration.
func Uses(c *config.Config, table string) (uses []string) {
	for _, name := range writersOf(c)[strings.ToLower(table)] {
		uses = append(uses, "pipeline "+name+" writes to it")
	}
	if slices.ContainsFunc(c.Tables, func(t config.Table) bool { return strings.EqualFold(t.Name, table) }) {
		uses = append(uses, "the configuration declares it")
	}
	return uses
}

// CheckTables returns the faults that would keep a configuration from being applied to the
// existing tables, with their places in the configuration. An engine may run in the data
// folder. notes lists changes that are not faults.
func CheckTables(c *config.Config) (notes []string, err error) {
	catalog, err := eventstore.ReadCatalog(filepath.Join(c.Data, folderName))
	if err != nil {
		return nil, err
	}
	var faults []error
	declared := map[string]bool{}
	for i := range c.Tables {
		t := &c.Tables[i]
		declared[strings.ToLower(t.Name)] = true
		wanted := tableConfig(t)
		if err := catalog.Check(t.Name, &wanted); err != nil {
			faults = append(faults, t.At(err, event.HintOf(err)))
		} else if before := catalog.Key(t.Name); len(before) > 0 && !slices.Equal(before, wanted.Unique.Key) {
			after := "no key: rows may repeat"
			if len(wanted.Unique.Key) > 0 {
				after = strings.Join(wanted.Unique.Key, ", ") + ": the new key ignores rows that are already in files"
			}
			notes = append(notes, fmt.Sprintf("table %s: the key of unique changes from %s to %s", t.Name, strings.Join(before, ", "), after))
		}
	}
	for _, p := range c.Pipelines {
		for i := range p.Sinks {
			s := &p.Sinks[i]
			if table := tableOf(s); table != "" && !declared[strings.ToLower(table)] {
				if err := catalog.Check(table, nil); err != nil {
					faults = append(faults, s.At(err, event.HintOf(err)))
				}
			}
		}
	}
	return notes, config.Join(faults...)
}
