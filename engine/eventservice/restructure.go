//go:build linux && cgo

package eventservice

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/pipeline"
	eventsink "github.com/perigeedb/perigee/sink/eventstore"
)

// dropTable drops a table and reports whether the running engine has created it again.
func dropTable(ctx context.Context, s *Store, store *eventstore.Store, c TableChange) (createdAgain bool, err error) {
	_, err = changeTable((*Store).refuseDrop, func(ctx context.Context, store *eventstore.Store, c TableChange) error {
		return store.DropTable(ctx, c.Table)
	})(ctx, s, store, c)
	return s.isDeclared(c.Table), err
}

// changeTable returns a change of a table that refuse may prevent, because a pipeline or the
// configuration of the running engine needs the table. It then applies the declared tables,
// which creates a dropped table again.
func changeTable(refuse func(*Store, context.Context, TableChange) error, change func(context.Context, *eventstore.Store, TableChange) error) func(context.Context, *Store, *eventstore.Store, TableChange) (struct{}, error) {
	return func(ctx context.Context, s *Store, store *eventstore.Store, c TableChange) (none struct{}, err error) {
		if err := refuse(s, ctx, c); err != nil {
			return none, err
		}
		if err := change(ctx, store, c); err != nil {
			return none, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.declareTables()
		return none, nil
	}
}

// declaration returns the declaration of a table in the running engine's configuration, or nil.
func (s *Store) declaration(table string) *config.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return declaredAs(s.tables, table)
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
	writers := s.writersTo(c.Table)
	if len(writers) == 0 {
		return nil
	}
	all, err := s.host.Status(ctx)
	if err != nil {
		return err
	}
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
	known, err := eventstore.ReadCatalog(s.folder)
	if err != nil {
		return err
	}
	wanted := tableConfig(t)
	if known.Check(t.Name, &wanted) != nil { // the declaration cannot be applied
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

// CheckLakes checks the catalogs and the warehouses of tables with a lake, and the program that
// publishes them.
func CheckLakes(ctx context.Context, c *config.Config) (all []engine.Connection) {
	var lakes []catalog.Lake
	for i := range c.Tables {
		if l := c.Tables[i].Lake; l.Warehouse != "" {
			l.Table = cmp.Or(l.Table, catalog.DefaultLakeTable(c.Tables[i].Name))
			lakes = append(lakes, l)
			all = append(all, engine.Connection{Part: "lake of table " + c.Tables[i].Name, Kind: cmp.Or(l.Catalog, l.Warehouse), Checked: true})
		}
	}
	if len(lakes) == 0 {
		return nil
	}
	if err := eventstore.CheckCommitter(ctx); err != nil {
		return []engine.Connection{{Part: "lake", Kind: "perigee-lake", Checked: true, Err: err}}
	}
	for i, err := range eventstore.CheckLakes(ctx, lakes) {
		all[i].Err = err
	}
	return all
}

// CheckTables returns the faults that would keep a configuration from being applied to the
// existing tables, with their places in the configuration. An engine may run in the data
// folder. notes lists changes that are not faults.
func CheckTables(c *config.Config) (notes []string, err error) {
	known, err := eventstore.ReadCatalog(filepath.Join(c.Data, folderName))
	if err != nil {
		return nil, err
	}
	var faults []error
	declared := map[string]bool{}
	for i := range c.Tables {
		t := &c.Tables[i]
		declared[strings.ToLower(t.Name)] = true
		wanted := tableConfig(t)
		if err := known.Check(t.Name, &wanted); err != nil {
			faults = append(faults, t.At(err, event.HintOf(err)))
		} else if before := known.Key(t.Name); len(before) > 0 && !slices.Equal(before, wanted.Unique.Key) {
			after := "no key: rows may repeat"
			if len(wanted.Unique.Key) > 0 {
				after = strings.Join(wanted.Unique.Key, ", ") + ": the new key ignores rows that are already in files"
			}
			notes = append(notes, fmt.Sprintf("table %s: the key of unique changes from %s to %s", t.Name, strings.Join(before, ", "), after))
		}
	}
	for i := range c.Tables {
		t := &c.Tables[i]
		if other := known.LakeUser(t.Name, tableConfig(t).Lake); other != "" && !declared[strings.ToLower(other)] {
			err := fmt.Errorf("table %s would be published where the undeclared table %s of the event store is", t.Name, other)
			faults = append(faults, t.At(err, fmt.Sprintf("set another lake.table; or declare table %[1]s without lake; or drop it: perigee table drop %[1]s", other)))
		}
	}
	for _, p := range c.Pipelines {
		for i := range p.Sinks {
			s := &p.Sinks[i]
			if table := tableOf(s); table != "" && !declared[strings.ToLower(table)] {
				if err := known.Check(table, nil); err != nil {
					faults = append(faults, s.At(err, event.HintOf(err)))
				}
			}
		}
	}
	return notes, config.Join(faults...)
}
