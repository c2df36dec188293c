package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/sqltext"
	"github.com/perigeedb/perigee/internal/terminal"
)

// shownRows is the number of rows of a longer result that a terminal shows.
const shownRows = 40

type queryCommand struct {
	SQL string `arg:"" optional:"" name:"sql" help:"Statements that read, such as SELECT, separated by semicolons."`
	dataFlags
	File   string        `short:"f" type:"path" placeholder:"FILE" help:"Read the statements from a file; - is standard input."`
	Format string        `enum:"table,json,ndjson,csv,arrow,parquet" default:"table" help:"table, json, ndjson, csv, arrow or parquet."`
	Param  []string      `short:"p" sep:"none" placeholder:"NAME[:TYPE]=VALUE" help:"Value of the parameter $NAME. Without a type it is a string."`
	Rows   int64         `placeholder:"N" help:"Maximum number of rows of a result."`
	Time   time.Duration `placeholder:"DURATION" help:"Time limit of a statement (default 30s)."`
	Memory string        `placeholder:"SIZE" help:"Memory limit of a statement, such as 64MiB (default: the engine's)."`
}

func (queryCommand) Help() string {
	return `Queries the event store in the engine's data folder. A running engine answers the query, and includes
every event that it has committed. Tables in the schema perigee describe the engine: its segments,
pipelines, log, dead letters and more; "perigee list system-tables" lists their columns.

The statements come from the argument, from a file, or from standard input. On a terminal without any
of these, the command starts a shell: the arrow keys recall earlier lines and Tab completes names.

A terminal shows the first and the last 20 rows of a longer table, and the total number; --rows 1000
shows 1000. Files and pipes get all rows, or the first 10,000 in the format table.

SHOW TABLES lists the tables, DESCRIBE lists the columns of a table. SHOW QUERIES lists the running
queries, and KILL ends one by its number.

Examples:
  perigee query 'SELECT event_name, count(*) FROM events GROUP BY 1'
  perigee query --config pipeline.yaml --format csv 'FROM events LIMIT 10' > events.csv
  perigee query 'FROM events WHERE user = $user AND time >= $from' -p user:int64=7 -p from=2026-01-02
  perigee query 'SELECT stage, error, count(*) FROM dead_letters GROUP BY ALL ORDER BY 3 DESC'
  perigee query --file report.sql --time 5m
  perigee query --format parquet 'FROM events' > events.parquet
  perigee query`
}

func (q *queryCommand) Run(c *console) error {
	data, _, err := q.locate(c)
	if err != nil {
		return err
	}
	base, err := q.request()
	if err != nil {
		return err
	}
	if eventservice.IsBinary(q.Format) && terminal.Is(c.out) {
		return usageError(q.Format + " is not text: redirect the output into a file")
	}
	if terminal.Is(c.out) && q.Rows == 0 {
		base.Shown = shownRows
	}
	if q.SQL == "" && q.File == "" {
		if in, ok := c.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) && terminal.Is(c.out) {
			return newShell(c, in, data, base).run()
		}
	}
	name, text, err := q.read(c)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return runStatements(ctx, c.out, data, name, text, base)
}

// request returns the settings of the flags for every statement.
func (q *queryCommand) request() (eventservice.Request, error) {
	r := eventservice.Request{Format: q.Format, Params: q.Param, Rows: q.Rows, Time: q.Time}
	if q.Rows < 0 || q.Time < 0 {
		return r, usageError("--rows and --time must not be negative")
	}
	for _, p := range q.Param {
		if name, _, ok := strings.Cut(p, "="); !ok || name == "" {
			return r, usageError(fmt.Sprintf("--param %q is not NAME=VALUE or NAME:TYPE=VALUE", p))
		}
	}
	if q.Memory == "" {
		return r, nil
	}
	var err error
	if r.Memory, err = sqltext.ParseSize(q.Memory); err != nil {
		return r, usageError("--memory: " + err.Error())
	}
	return r, nil
}

// read returns the statements, and the name of their file.
func (q *queryCommand) read(c *console) (name, text string, err error) {
	var all []byte
	switch {
	case q.SQL != "" && q.File != "":
		return "", "", usageError("the argument and --file both have SQL: use one of them")
	case q.SQL != "":
		return "", q.SQL, nil
	case q.File == "" || strings.HasSuffix(q.File, "/-"): // a path that was made absolute
		name = "standard input"
		all, err = io.ReadAll(c.in)
	default:
		name = q.File
		all, err = os.ReadFile(q.File)
	}
	if err != nil {
		return "", "", fmt.Errorf("read the SQL: %w", err)
	}
	return name, string(all), nil
}

// runStatements runs the statements of a text one after another, until one fails.
func runStatements(ctx context.Context, out io.Writer, data, name, text string, base eventservice.Request) error {
	parts := sqltext.Split(text)
	if len(parts) == 0 {
		return event.WithHint(usageError("the SQL has no statement"), "write a statement, such as SHOW TABLES")
	}
	if len(parts) > 1 && eventservice.IsBinary(base.Format) {
		return usageError(fmt.Sprintf("a file of format %s takes one statement, not %d: run them one by one", base.Format, len(parts)))
	}
	for _, part := range parts {
		r := base
		r.SQL, r.File, r.Text, r.Line, r.Column = part.SQL, name, text, part.Line, part.Column
		r.Params = usedParams(part.SQL, base.Params, len(parts))
		if err := eventservice.Query(ctx, data, r, out); err != nil {
			return err
		}
	}
	return nil
}

// usedParams returns the parameters of one statement. Of several statements, each gets only
// the parameters that it names.
func usedParams(sql string, params []string, statements int) (used []string) {
	if statements == 1 {
		return params
	}
	names := sqltext.Params(sql)
	for _, p := range params {
		name, _, _ := strings.Cut(p, "=")
		name, _, _ = strings.Cut(name, ":")
		if names[strings.ToLower(name)] {
			used = append(used, p)
		}
	}
	return used
}
