package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/internal/sqltext"
	"github.com/perigeedb/perigee/internal/terminal"
)

type tableCommand struct {
	List   tableListCommand   `cmd:"" help:"List the tables of the event store."`
	Show   tableShowCommand   `cmd:"" help:"Show the columns, files and settings of a table."`
	Delete tableDeleteCommand `cmd:"" help:"Delete rows for good."`

	Recompute tableRecomputeCommand `cmd:"" help:"Fill a computed column of stored rows."`

	Lake tableLakeCommand `cmd:"" help:"Change how a table is published in its lake."`

	Drop       tableDropCommand       `cmd:"" help:"Remove a table with its rows and positions."`
	Rename     tableRenameCommand     `cmd:"" help:"Rename a table."`
	SetTime    tableSetTimeCommand    `cmd:"" help:"Set or remove the time column of a table."`
	DropColumn tableDropColumnCommand `cmd:"" help:"Remove a column of a table with its values."`
}

type tableListCommand struct {
	dataFlags
	Format string `enum:"table,json" default:"table" help:"table or json."`
}

func (tableListCommand) Help() string {
	return `Shows for each table of the event store the number of rows, the number of rows that are only in the log,
the number and size of the Parquet files, the range of event times, and the retention. The counts include
rows of an unfinished delete. The command works with or without a running engine.

Examples:
  perigee table list
  perigee table list --config pipeline.yaml --format json`
}

func (l *tableListCommand) Run(c *console) error {
	data, _, err := l.locate(c)
	if err != nil {
		return err
	}
	tables, err := eventservice.Tables(context.Background(), data)
	if err != nil {
		return err
	}
	if l.Format == "json" {
		return newEncoder(c.out).Encode(tables)
	}
	t := newTable("table", "rows", "in the log", "files", "bytes", "oldest event (UTC)", "newest event (UTC)", "retention")
	for _, one := range tables {
		t.AppendRow(table.Row{one.Name, one.Rows, one.LogRows, len(one.Files), byteCount(uint64(one.Bytes)), timeText(one.Oldest), timeText(one.Newest), retentionText(one.Retention)})
	}
	if len(tables) > 0 {
		fmt.Fprintln(c.out, t.Render())
	}
	printLakeFailures(c.out, tables)
	fmt.Fprintln(c.out, countOf(len(tables), "table"))
	printData(c.out, data)
	return nil
}

// printLakeFailures has a line for each table whose last attempt to be published failed, or whose data
// could not be read in its lake.
func printLakeFailures(w io.Writer, tables []catalog.Table) {
	for _, t := range tables {
		l := t.Lake
		if l == nil || l.Error == "" {
			continue
		}
		waiting := ""
		if l.WaitingFiles > 0 {
			waiting = fmt.Sprintf("; %s with %s waiting since %s UTC", countOf(l.WaitingFiles, "file"), byteCount(uint64(l.WaitingBytes)), timeText(l.WaitingSince))
		}
		fmt.Fprintf(w, "the lake of table %s fails: %s%s\n", t.Name, terminal.Escape(l.Error+hintText(l.Hint)), waiting)
	}
}

type tableShowCommand struct {
	dataFlags
	Table  string `arg:"" help:"Name of the table."`
	Format string `enum:"table,json" default:"table" help:"table or json."`
}

func (tableShowCommand) Help() string {
	return `Shows the columns of a table of the event store, its Parquet files with their rows, bytes and event times,
and its unfinished deletes and recomputes. For a table with unique, it also shows the number of rows that
were dropped because their key had been seen.

Examples:
  perigee table show events
  perigee table show events --format json | jq '.files[].file'`
}

func (s *tableShowCommand) Run(c *console) error {
	data, _, err := s.locate(c)
	if err != nil {
		return err
	}
	t, err := findTable(data, s.Table)
	if err != nil {
		return err
	}
	if s.Format == "json" {
		return newEncoder(c.out).Encode(t)
	}
	printTable(c.out, t)
	printData(c.out, data)
	return nil
}

// findTable describes the table with a name. Like SQL, it ignores case.
func findTable(data, name string) (*catalog.Table, error) {
	tables, err := eventservice.Tables(context.Background(), data)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(tables, func(t catalog.Table) bool { return strings.EqualFold(t.Name, name) })
	if i >= 0 {
		return &tables[i], nil
	}
	names := []string{}
	for _, t := range tables {
		names = append(names, t.Name)
	}
	hint := "tables: " + strings.Join(names, ", ")
	if near := nearest.Name(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	return nil, event.WithHint(fmt.Errorf("unknown table %q in data folder %s", name, data), hint)
}

func printTable(w io.Writer, t *catalog.Table) {
	fmt.Fprintf(w, "table         %s\n", t.Name)
	fmt.Fprintf(w, "rows          %s (%s only in the log)\n", thousands(uint64(t.Rows)), thousands(uint64(t.LogRows)))
	fmt.Fprintf(w, "files         %d, %s\n", len(t.Files), byteCount(uint64(t.Bytes)))
	if !t.Oldest.IsZero() {
		fmt.Fprintf(w, "event times   %s to %s UTC\n", timeText(t.Oldest), timeText(t.Newest))
	}
	for _, setting := range [][2]string{{"event column", t.Event}, {"time column", t.Time}, {"retention", retentionText(t.Retention)}} {
		if setting[1] != "" {
			fmt.Fprintf(w, "%-13s %s\n", setting[0], setting[1])
		}
	}
	if u := t.Unique; u != nil {
		fmt.Fprintf(w, "unique        %s within %s: %s dropped since the start; %s in %s of memory\n",
			strings.Join(u.Key, ", "), retentionText(u.Window), countOf(int(u.Repeated), "row"), countOf(u.Keys, "key"), byteCount(uint64(u.Bytes)))
	}
	if t.Lake != nil {
		fmt.Fprintf(w, "lake          %s\n", lakeText(t.Lake))
	}
	columns := newTable("column", "type")
	for _, c := range t.Columns {
		columns.AppendRow(table.Row{firstLine(c.Name, 60), c.Type})
	}
	fmt.Fprintf(w, "\nschema version %d\n%s\n", t.Schema, columns.Render())
	if len(t.Files) > 0 {
		files := newTable("file", "rows", "bytes", "oldest event (UTC)", "newest event (UTC)", "schema")
		for _, f := range t.Files {
			files.AppendRow(table.Row{f.Name, f.Rows, byteCount(uint64(f.Bytes)), timeText(f.Oldest), timeText(f.Newest), f.Schema})
		}
		fmt.Fprintf(w, "\n%s\n", files.Render())
	}
	for _, d := range t.Deletes {
		state := "is running"
		switch {
		case d.Lake != "":
			state = purgeText(d)
		case d.Error != "":
			state += ", and cannot fetch a file from the lake: " + d.Error + hintText(d.Hint)
		}
		fmt.Fprintf(w, "delete %d, requested %s UTC, %s: WHERE %s\n", d.Number, d.RequestedAt.UTC().Format(timeLayout), state, firstLine(d.Where, 100))
	}
	for _, r := range t.Recomputes {
		fmt.Fprintf(w, "recompute %d of column %s, requested %s UTC, %s\n", r.Number, r.Column, r.RequestedAt.UTC().Format(timeLayout), recomputeText(r))
	}
}

// purgeText returns what a delete waits for that the store has carried out, but not the lake.
func purgeText(d catalog.Delete) string {
	text := "is done in the store, and the lake may have the rows (" + d.Lake + ")"
	if !d.Until.IsZero() {
		text += ", next attempt " + d.Until.UTC().Format(timeLayout) + " UTC"
	}
	return text
}

type tableDeleteCommand struct {
	dataFlags
	Table  string   `arg:"" help:"Name of the table."`
	Where  []string `arg:"" optional:"" help:"WHERE and a condition in SQL."`
	NoWait bool     `help:"Return as soon as queries no longer see the rows; do not wait for the files."`
	Cancel uint64   `placeholder:"NUMBER" help:"Cancel the unfinished delete with this number. Rows that are still stored become visible again."`
	Yes    bool     `short:"y" help:"Do not ask for confirmation."`
}

func (tableDeleteCommand) Help() string {
	return `Deletes the present rows for which the condition is true; later rows stay. Queries stop seeing these rows
at once, even after a crash. The store then rewrites the log and the Parquet files that contain them, and
the command reports when no file contains them. If you stop the command, for example with Ctrl-C, the
engine continues, or the next one does. Backups and exports keep their rows.

The lake of a table has the rows for about another hour, in which queries of other engines end. Then its
snapshots with the rows expire, and their objects are removed, with older versions. "perigee table show"
lists the delete until then, and what it waits for.

--cancel ends an unfinished delete, or the wait for the lake; the command and "perigee table show" print its number. Rows that the
log or a file still contains become visible again; rows of files that were already rewritten are gone.

On a terminal the command first prints the number of rows and asks for confirmation; elsewhere --yes is
required. Quote a condition with special characters of the shell, such as quotes and >.

Examples:
  perigee table delete events WHERE user = 7
  perigee table delete events "WHERE email = 'mallory@example.org' AND time < '2026-11-01'" --yes
  perigee table delete events --cancel 3`
}

func (d *tableDeleteCommand) Run(c *console) error {
	data, _, err := d.locate(c)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if d.Cancel > 0 {
		return d.cancel(ctx, c, data)
	}
	where, err := d.condition()
	if err != nil {
		return err
	}
	t, err := findTable(data, d.Table)
	if err != nil {
		return err
	}
	if !d.Yes {
		n, err := countRows(ctx, data, t.Name, where)
		if err != nil {
			return err
		}
		if err := c.confirm(fmt.Sprintf("Delete %s of table %s in data folder %s?", countOf(n, "row"), t.Name, data)); err != nil {
			return err
		}
	}
	deletion, err := eventservice.DeleteRows(ctx, data, t.Name, where)
	if err != nil {
		return err
	}
	if d.NoWait {
		fmt.Fprintf(c.out, "delete %d: the rows are removed from queries; perigee table show %s shows whether files still contain them\n", deletion.Number, t.Name)
		printData(c.out, data)
		return nil
	}
	display := newDisplay(c.err)
	hide := display.spin("the rows are removed from queries; rewriting files")
	stopWarning := warnOfDelete(ctx, display, data, deletion)
	err = eventservice.WaitDeleted(ctx, data, deletion)
	stopWarning()
	hide()
	if err != nil && ctx.Err() != nil {
		fmt.Fprintf(c.out, "delete %[1]d continues: the rows are removed from queries; perigee table show %[2]s shows whether files still contain them, and perigee table delete %[2]s --cancel %[1]d cancels it\n",
			deletion.Number, t.Name)
		return exitError(128 + int(syscall.SIGINT))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "delete %d: the rows are removed from queries and files\n", deletion.Number)
	if t, err = findTable(data, d.Table); err != nil {
		return err
	}
	for _, waits := range t.Deletes {
		if waits.Number == deletion.Number && waits.Lake != "" {
			fmt.Fprintf(c.out, "the lake has them for about another hour; perigee table show %s lists the delete until they are gone\n", t.Name)
		}
	}
	printData(c.out, data)
	return nil
}

// deleteInterval is the interval at which a command that waits for a delete looks for what holds it up.
const deleteInterval = 3 * time.Second

// warnOfDelete prints what holds up a delete, whenever that changes, until stop is called.
func warnOfDelete(ctx context.Context, w io.Writer, data string, deletion catalog.Delete) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for told := ""; ; {
			select {
			case <-end:
				return
			case <-time.After(deleteInterval):
			}
			tables, _ := eventservice.Tables(ctx, data) // the command that waits reports an error
			i := slices.IndexFunc(tables, func(t catalog.Table) bool { return strings.EqualFold(t.Name, deletion.Table) })
			if i < 0 {
				continue
			}
			for _, one := range tables[i].Deletes {
				if one.Number == deletion.Number && one.Error != "" && one.Error != told {
					told = one.Error
					err := event.WithHint(fmt.Errorf("delete %d waits: %s", one.Number, one.Error), cmp.Or(one.Hint, "it continues once that is repaired")+
						fmt.Sprintf("; Ctrl-C lets it continue without this command, and perigee table delete %s --cancel %d cancels it", deletion.Table, one.Number))
					printMessage(w, "warning", err, "")
				}
			}
		}
	}()
	return func() { close(end); <-ended }
}

// cancel ends an unfinished delete.
func (d *tableDeleteCommand) cancel(ctx context.Context, c *console, data string) error {
	if len(d.Where) > 0 {
		return event.WithHint(usageError("--cancel takes no condition"), fmt.Sprintf("write perigee table delete %s --cancel %d", d.Table, d.Cancel))
	}
	t, err := findTable(data, d.Table)
	if err != nil {
		return err
	}
	without, err := eventservice.CancelDelete(ctx, data, t.Name, d.Cancel)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "delete %d is canceled: rows that are still stored are visible again; files already rewritten without them: %d\n", d.Cancel, without)
	printData(c.out, data)
	return nil
}

// condition returns the condition after the word WHERE.
func (d *tableDeleteCommand) condition() (string, error) {
	text := strings.TrimSpace(strings.Join(d.Where, " "))
	word, condition, _ := strings.Cut(text, " ")
	if !strings.EqualFold(word, "where") || strings.TrimSpace(condition) == "" {
		return "", event.WithHint(usageError(fmt.Sprintf("no condition in %q", text)),
			`write WHERE and a condition, as in: perigee table delete events "WHERE user = 7"`)
	}
	return strings.TrimSpace(condition), nil
}

// countRows counts the rows of a table for which a condition is true.
func countRows(ctx context.Context, data, name, where string) (int, error) {
	var answer strings.Builder
	q := eventservice.Request{SQL: fmt.Sprintf("SELECT count(*) AS n FROM %s WHERE %s", sqltext.QuoteName(name), where), Format: "csv"}
	if err := eventservice.Query(ctx, data, q, &answer); err != nil {
		return 0, err
	}
	_, n, _ := strings.Cut(strings.TrimSpace(answer.String()), "\n")
	return strconv.Atoi(n)
}

// lakeText describes how far a table is published.
func lakeText(l *catalog.LakeState) string {
	text := l.LakeTable + " in " + l.Warehouse
	if l.Catalog != "" {
		text += " with the catalog " + l.Catalog
	}
	if l.Committed.IsZero() {
		text += ", not published yet"
	} else {
		text += ", last commit " + timeText(l.Committed) + " UTC"
	}
	if l.WaitingFiles > 0 {
		text += fmt.Sprintf("; %s with %s to publish", countOf(l.WaitingFiles, "file"), byteCount(uint64(l.WaitingBytes)))
	}
	if l.Widening != "" {
		text += fmt.Sprintf("; column %s is being widened: %s ready", l.Widening, countOf(l.WidenedFiles, "file"))
	}
	if l.Misfits > 0 {
		text += fmt.Sprintf("; %s in _rest, because the type of the column in the lake is narrower", countOf(int(l.Misfits), "value"))
	}
	if l.RemoteFiles > 0 {
		text += fmt.Sprintf("; %s with %s only there", countOf(l.RemoteFiles, "file"), byteCount(uint64(l.RemoteBytes)))
	}
	if l.DeleteFiles > 0 {
		text += fmt.Sprintf("; %s of other engines, so that queries do not read rows that are only there", countOf(l.DeleteFiles, "delete file"))
	}
	if l.Gone > 0 {
		text += fmt.Sprintf("; %s that another engine has rewritten", countOf(l.Gone, "file"))
	}
	if l.Error != "" {
		text += "; failed: " + l.Error + hintText(l.Hint)
	}
	return text
}

func hintText(hint string) string {
	if hint == "" {
		return ""
	}
	return " (" + hint + ")"
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeLayout)
}

// retentionText writes whole days as days, other durations as they are, and zero as "".
func retentionText(d catalog.Duration) string {
	const day = catalog.Duration(24 * time.Hour)
	switch {
	case d == 0:
		return ""
	case d%day != 0:
		return d.String()
	}
	return countOf(int(d/day), "day")
}
