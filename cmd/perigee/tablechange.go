package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventsql"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/sqltext"
)

type tableDropCommand struct {
	dataFlags
	Table string `arg:"" help:"Name of the table."`
	Yes   bool   `short:"y" help:"Do not ask for confirmation."`
}

func (tableDropCommand) Help() string {
	return `Removes a table with its rows, its settings, and the positions of the pipelines that wrote to it. Backups and
exports keep what they have. A pipeline that writes to a table of that name makes it again, as the
configuration declares it then, and begins with what its source still has: each of those events is stored
once. Other sinks of the pipeline keep their positions, and their rows.

While an engine runs, the pipelines that write to the table must be paused: the command names them. A table
that the engine's configuration declares is made again at once, without rows.

On a terminal the command first says how many rows the table has, and asks; elsewhere --yes is required.

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
	madeAgain, err := eventsql.DropTable(context.Background(), data, t.Name)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "table %s is dropped\n", t.Name)
	if madeAgain {
		fmt.Fprintln(c.out, "the configuration of the running engine declares it: it is there again, without rows")
	}
	printData(c.out, data)
	return nil
}

// find returns a table of the data folder, and the configuration if one is named.
func (f dataFlags) find(c *console, table string) (data string, conf *config.Config, t *eventsql.Table, err error) {
	if data, conf, err = f.locate(c); err == nil {
		t, err = findTable(data, table)
	}
	return data, conf, t, err
}

// usesText says what a configuration, which may be nil, has to do with a table.
func usesText(conf *config.Config, table string) string {
	if conf == nil {
		return ""
	}
	if uses := eventsql.Uses(conf, table); len(uses) > 0 {
		return fmt.Sprintf(" (%s)", strings.Join(uses, "; "))
	}
	return ""
}

type tableRenameCommand struct {
	dataFlags
	Table   string `arg:"" name:"old" help:"Name of the table."`
	To      string `arg:"" name:"new" help:"Its new name."`
	Release bool   `help:"Free the old name: a pipeline that writes to it makes a new table, and begins with what its source has."`
}

func (tableRenameCommand) Help() string {
	return `Gives a table another name. Its rows, settings and positions stay with it: a pipeline that writes to the new
name goes on where it was.

The old name stays with the table too. A configuration that still has it is refused, and told the new name:
otherwise a pipeline would make a new table, and store its events there once more. With --release the old
name is free, also when the table was renamed before.

While an engine runs whose configuration names the table, the command refuses: stop the engine, rename the
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
	} else if !r.Release { // otherwise the table may have its new name already
		return err
	}
	if err := eventsql.RenameTable(context.Background(), data, eventsql.TableChange{Table: name, To: r.To, Release: r.Release}); err != nil {
		return err
	}
	if t == nil {
		fmt.Fprintf(c.out, "the name %s is free: table %s keeps its rows and positions\n", name, r.To)
	} else {
		fmt.Fprintf(c.out, "table %s is called %s now\n", name, r.To)
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
	None   bool   `help:"The table has no time column."`
	Unit   string `enum:"s,ms,us,ns,text" default:"s" placeholder:"UNIT" help:"What numbers in the column count since 1970: s, ms, us or ns; with text, only text is a time."`
	Type   string `enum:"timestamp,timestamp_ns," default:"" placeholder:"TYPE" help:"timestamp or timestamp_ns (default: timestamp_ns with the unit ns)."`
	NoWait bool   `help:"Return when queries and events have the column, without waiting until the files are written again."`
}

func (tableSetTimeCommand) Help() string {
	return `Gives a table another time column: one that it has, with text such as 2026-11-23T09:30:00Z or numbers. Its
values become times; an event without it is a dead letter from then on. So a table that was made before
the configuration declared its time becomes what is declared. With --none the table loses its retention too.

If a row has no time there, the command changes nothing and says how many rows have none. While it reads
the times, rows are appended; at the end they wait for a moment. Queries have the column when the command
says so. Then files are written again, one for each day. If the command is stopped meanwhile, the engine
goes on with that, and so does the next one, also after kill -9; each row is there once at any time.

Examples:
  perigee table set-time events time
  perigee table set-time events sent --unit ms
  perigee table set-time events --none`
}

func (s *tableSetTimeCommand) Run(c *console) error {
	if s.None == (s.Column != "") {
		return event.WithHint(usageError("name the column with the times, or --none for no time column"), "perigee table set-time events time")
	}
	data, _, t, err := s.find(c, s.Table)
	if err != nil {
		return err
	}
	ctx := context.Background()
	hide := spin(c, "reading the times of the rows")
	err = eventsql.SetTableTime(ctx, data, eventsql.TableChange{Table: t.Name, Column: s.Column, Unit: s.Unit, Type: s.Type})
	hide()
	if err != nil {
		return err
	}
	if s.None {
		fmt.Fprintf(c.out, "table %s has no time column now\n", t.Name)
		if t.Retention != "" {
			fmt.Fprintf(c.out, "its rows stay for ever: its retention of %s needs a time column, and is removed\n", t.Retention)
		}
		printData(c.out, data)
		return nil
	}
	files := ""
	if !s.NoWait {
		hide := spin(c, "queries have the time column; writing the files again")
		err := eventsql.WaitDivided(ctx, data, t.Name)
		hide()
		if err != nil {
			return err
		}
		files = ", and its files hold one day each"
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
	return `Removes a column of a table with its values. Queries do not see it any more; files lose the values when they
are next written. A later event that has the field makes the column again: of the type that the
configuration declares, or of the value's own. So a column whose type was inferred before it was declared
becomes what is declared, without its old values.

The time column, the event column, and columns of sort, bloom, unique and computed stay: the command says
which it is and what to do. Whether the function of another computed column reads the column, it cannot know.

On a terminal the command first says how many rows have a value, and asks; elsewhere --yes is required.

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
		question := fmt.Sprintf("Drop column %s of table %s, which %s a value for, in data folder %s?", d.Column, t.Name, haveText(n), data)
		if err := c.confirm(question + usesText(conf, t.Name)); err != nil {
			return err
		}
	}
	if err := eventsql.DropColumn(context.Background(), data, t.Name, d.Column); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "column %s of table %s is dropped\n", d.Column, t.Name)
	printData(c.out, data)
	return nil
}

func haveText(rows int) string {
	if rows == 1 {
		return "1 row has"
	}
	return countOf(rows, "row") + " have"
}
