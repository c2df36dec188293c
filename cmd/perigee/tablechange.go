package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/sqltext"
)

type tableDropCommand struct {
	dataFlags
	Table string `arg:"" help:"Name of the table."`
	Yes   bool   `short:"y" help:"Do not ask for confirmation."`
}

func (tableDropCommand) Help() string {
	return `Removes a table with its rows, its settings, and the positions of the pipelines that wrote to it. Backups
and exports keep their rows. The next pipeline that writes to a table of that name creates it as declared
in the configuration, and stores each event that its source still has, once. Other sinks of the pipeline
keep their positions and rows.

While an engine runs, first pause the pipelines that write to the table; the command names them. The
engine immediately creates the tables of its configuration again, without rows.

On a terminal the command first prints the number of rows and asks for confirmation; elsewhere --yes is
required.

Examples:
  perigee table drop events
  perigee pause users && perigee table drop users --yes && perigee resume users`
}

func (d *tableDropCommand) Run(c *console) error {
	data, conf, t, err := d.find(c, d.Table)
	if err != nil {
		return err
	}
	if !d.Yes {
		question := fmt.Sprintf("Drop table %s with %s in data folder %s?", t.Name, countOf(int(t.Rows), "row"), data)
		if err := c.confirm(question + usesText(conf, t.Name)); err != nil {
			return err
		}
	}
	createdAgain, err := eventservice.DropTable(context.Background(), data, t.Name)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "table %s is dropped\n", t.Name)
	if l := t.Lake; l != nil && !l.Committed.IsZero() {
		fmt.Fprintf(c.out, "the lake table %s in %s keeps its rows: drop it there, with its files, or set another lake.table before the table is published again\n", l.LakeTable, l.Warehouse)
	}
	if createdAgain {
		fmt.Fprintln(c.out, "the running engine declares the table and has created it again, without rows")
	}
	printData(c.out, data)
	return nil
}

// find returns a table of the data folder, and the configuration if one is named.
func (f dataFlags) find(c *console, table string) (data string, conf *config.Config, t *catalog.Table, err error) {
	if data, conf, err = f.locate(c); err == nil {
		t, err = findTable(data, table)
	}
	return data, conf, t, err
}

// usesText lists the uses of a table in a configuration, which may be nil.
func usesText(conf *config.Config, table string) string {
	if conf == nil {
		return ""
	}
	if uses := eventservice.Uses(conf, table); len(uses) > 0 {
		return fmt.Sprintf(" (%s)", strings.Join(uses, "; "))
	}
	return ""
}

type tableRenameCommand struct {
	dataFlags
	Table   string `arg:"" name:"old" help:"Name of the table."`
	To      string `arg:"" name:"new" help:"New name."`
	Release bool   `help:"Free the old name. A pipeline that writes to it then creates a new table with the events that its source still has."`
}

func (tableRenameCommand) Help() string {
	return `Renames a table. The table keeps its rows, settings and positions, so a pipeline that writes to the new name
continues from its position.

The old name stays reserved: the store refuses a configuration with the old name, and the error gives the
new one. Otherwise a pipeline would create a new table and store its events a second time. --release
frees the old name, even of a table that was renamed before.

The command refuses while an engine runs whose configuration names the table: stop the engine, rename the
table, and write the new name in the configuration.

Examples:
  perigee table rename events events_2026
  perigee table rename events events_2026 --release`
}

func (r *tableRenameCommand) Run(c *console) error {
	data, conf, err := r.locate(c)
	if err != nil {
		return err
	}
	name := r.Table
	t, err := findTable(data, name)
	if err == nil {
		name = t.Name
	} else if !r.Release { // with --release, the table may already have its new name
		return err
	}
	if err := eventservice.RenameTable(context.Background(), data, eventservice.TableChange{Table: name, To: r.To, Release: r.Release}); err != nil {
		return err
	}
	if t == nil {
		fmt.Fprintf(c.out, "the name %s is free: table %s keeps its rows and positions\n", name, r.To)
	} else {
		fmt.Fprintf(c.out, "table %s is renamed to %s\n", name, r.To)
	}
	if uses := usesText(conf, name); uses != "" && !r.Release {
		fmt.Fprintf(c.out, "write %s in the configuration%s\n", r.To, uses)
	}
	printData(c.out, data)
	return nil
}

type tableSetTimeCommand struct {
	dataFlags
	Table  string `arg:"" help:"Name of the table."`
	Column string `arg:"" optional:"" help:"Column with the event's own time."`
	None   bool   `help:"Remove the time column setting."`
	Unit   string `enum:"s,ms,us,ns,text" default:"s" placeholder:"UNIT" help:"Unit of numbers in the column, counted since 1970: s, ms, us or ns; with text, numbers are invalid."`
	Type   string `enum:"timestamp,timestamp_ns," default:"" placeholder:"TYPE" help:"timestamp or timestamp_ns (default: timestamp_ns with the unit ns)."`
	NoWait bool   `help:"Return as soon as queries and events use the column; do not wait for the files to be rewritten."`
}

func (tableSetTimeCommand) Help() string {
	return `Sets the time column of a table. The column must exist, with text such as 2026-11-23T09:30:00Z or with
numbers. Its values become times; later events without the field become dead letters. Use it for a table
that was created before the configuration declared its time. --none removes the time column setting, and
with it the retention.

If a row has no valid time, the command changes nothing and prints the number of such rows. Appends
continue while it reads the times, and wait for a moment at the end. The command reports when queries use
the column. The engine then rewrites the files, one for each day. If you stop the command meanwhile, the
engine continues, and so does the next one, even after kill -9. Queries see each row exactly once at any
time.

Examples:
  perigee table set-time events time
  perigee table set-time events sent --unit ms
  perigee table set-time events --none`
}

func (s *tableSetTimeCommand) Run(c *console) error {
	if s.None == (s.Column != "") {
		return event.WithHint(usageError("give either a column or --none"), "perigee table set-time events time")
	}
	data, _, t, err := s.find(c, s.Table)
	if err != nil {
		return err
	}
	ctx := context.Background()
	hide := spin(c, "reading the times of the rows")
	err = eventservice.SetTableTime(ctx, data, eventservice.TableChange{Table: t.Name, Column: s.Column, Unit: s.Unit, Type: s.Type})
	hide()
	if err != nil {
		return err
	}
	if s.None {
		fmt.Fprintf(c.out, "table %s has no time column now\n", t.Name)
		if t.Retention != 0 {
			fmt.Fprintf(c.out, "its retention of %s needs a time column and is removed: rows are kept without limit\n", t.Retention)
		}
		printData(c.out, data)
		return nil
	}
	files := ""
	if !s.NoWait {
		hide := spin(c, "queries use the time column; rewriting files")
		err := eventservice.WaitDivided(ctx, data, t.Name)
		hide()
		if err != nil {
			return err
		}
		files = ", and each of its files holds one day"
	}
	fmt.Fprintf(c.out, "table %s has the time column %s now%s\n", t.Name, s.Column, files)
	printData(c.out, data)
	return nil
}

type tableDropColumnCommand struct {
	dataFlags
	Table  string `arg:"" help:"Name of the table."`
	Column string `arg:"" help:"Column to remove."`
	Yes    bool   `short:"y" help:"Do not ask for confirmation."`
}

func (tableDropColumnCommand) Help() string {
	return `Removes a column of a table with its values. Queries no longer see it; files lose the values when they are
next rewritten. The next event with the field adds the column again, with the declared type, or with the
type of the value. Use it for a column whose type was inferred before it was declared.

The command refuses to drop the time column, the event column, and columns of sort, bloom, unique and
computed, and says what to do. It does not check whether the function of another computed column reads
the column.

On a terminal the command first prints the number of rows with a value and asks for confirmation;
elsewhere --yes is required.

Examples:
  perigee table drop-column orders price
  perigee table drop-column orders price --config pipeline.yaml --yes`
}

func (d *tableDropColumnCommand) Run(c *console) error {
	data, conf, t, err := d.find(c, d.Table)
	if err != nil {
		return err
	}
	if !d.Yes {
		n, err := countRows(context.Background(), data, t.Name, sqltext.QuoteName(d.Column)+" IS NOT NULL")
		if err != nil {
			return err
		}
		question := fmt.Sprintf("Drop column %s of table %s, with values in %s, in data folder %s?", d.Column, t.Name, countOf(n, "row"), data)
		if err := c.confirm(question + usesText(conf, t.Name)); err != nil {
			return err
		}
	}
	if err := eventservice.DropColumn(context.Background(), data, t.Name, d.Column); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "column %s of table %s is dropped\n", d.Column, t.Name)
	printData(c.out, data)
	return nil
}
