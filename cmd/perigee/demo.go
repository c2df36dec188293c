package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/examples"
	"github.com/perigeedb/perigee/internal/audit"
)

type demoCommand struct {
	Events uint64 `default:"1000000" help:"Number of events."`
	Data   string `type:"path" placeholder:"DIR" help:"Keep the data in this folder, which must be new or empty (default: a temporary folder)."`
}

func (demoCommand) Help() string {
	return `Runs the example examples/email/embedded.yaml: generated email events go through email.lua, which drops
spam and rejects addresses without @, into a table of the embedded event store. Then it accounts for
every event: each must be a row, dropped by the script, or a dead letter, exactly once.

Exit code: 0 if no event was lost or duplicated, 1 otherwise.

Examples:
  perigee demo
  perigee demo --events 100000 --data /tmp/demo
  perigee query --data /tmp/demo 'SELECT domain, count(*) FROM events GROUP BY 1 ORDER BY 2 DESC'`
}

const (
	demoSeed  = 1
	demoTable = `SELECT date_trunc('hour', "time") AS hour,
  count(*) FILTER (event_name = 'sent') AS sent, count(*) FILTER (event_name = 'open') AS open,
  count(*) FILTER (event_name = 'click') AS click, count(*) FILTER (event_name = 'bounce') AS bounce
FROM events GROUP BY 1 ORDER BY 1`
)

func (d *demoCommand) Run(c *console) error {
	if err := eventservice.Available(); err != nil {
		return err
	}
	folder, remove, err := d.folder()
	if err != nil {
		return err
	}
	defer remove()
	took, err := d.run(c, folder)
	if err != nil {
		return err
	}
	report, err := d.verify(folder)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	rate := perSecond(report.Events, took)
	fmt.Fprintf(c.out, "demo: %v, %d events/s\n\n%s\n\n", report, rate, demoTable)
	if err := eventservice.Query(context.Background(), folder, eventservice.Request{SQL: demoTable, Format: "table"}, c.out); err != nil {
		return fmt.Errorf("query: %w", err)
	}
	fmt.Fprintf(c.out, "\nfigure demo_lost %d\nfigure demo_duplicated %d\nfigure demo_events_per_s %d\n", report.Lost, report.Duplicated, rate)
	return report.Err()
}

// folder creates the working folder of the demo. The caller must call remove.
func (d *demoCommand) folder() (folder string, remove func(), err error) {
	if d.Data == "" {
		folder, err = os.MkdirTemp("", "perigee-demo-")
		return folder, func() { os.RemoveAll(folder) }, err
	}
	if err := os.MkdirAll(d.Data, 0o700); err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir(d.Data)
	if err == nil && len(entries) > 0 {
		err = event.WithHint(fmt.Errorf("folder %s is not empty", d.Data), "name a new folder; the demo counts only its own events")
	}
	return d.Data, func() {}, err
}

// run runs the example and returns the time that it took.
func (d *demoCommand) run(c *console, folder string) (time.Duration, error) {
	if err := os.CopyFS(filepath.Join(folder, "example"), emailExample()); err != nil {
		return 0, fmt.Errorf("write the example: %w", err)
	}
	display := newDisplay(c.err)
	options := engineOptions(c, nil, logFlags{LogLevel: slog.LevelError}.newLogger(c, display))
	options.Lookup = d.lookup(folder)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	e, err := engine.OpenFile(ctx, filepath.Join(folder, "example", "embedded.yaml"), options)
	if err != nil {
		return 0, err
	}
	signals := handleSignals(e, options.Log, stop, nil)
	hide := display.show(barOf(e, d.Events))
	start := time.Now()
	err = e.Run(ctx)
	took := time.Since(start)
	hide()
	done := e.Status()[0].Events
	code := signals.stop() // before Close: it may be reporting the status
	err = errors.Join(err, e.Close())
	if code != 0 {
		return 0, code
	}
	if err == nil && done < d.Events {
		err = fmt.Errorf("interrupted after %d of %d events", done, d.Events)
	}
	return took, err
}

func emailExample() fs.FS {
	sub, err := fs.Sub(examples.Files, "email")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// lookup returns the environment of the example.
func (d *demoCommand) lookup(folder string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := map[string]string{
			"DATA": folder, "HTTP": "off", "EVENTS": strconv.FormatUint(d.Events, 10), "SEED": strconv.Itoa(demoSeed),
		}[name]
		return value, ok
	}
}

// verify reads the result of every event from disk.
func (d *demoCommand) verify(folder string) (audit.Report, error) {
	ledger := audit.New(d.Events)
	if err := eventservice.ReadIDs(context.Background(), folder, "events", "id", ledger.AddRow); err != nil {
		return audit.Report{}, err
	}
	if err := ledger.AddDeadLetters(folder); err != nil {
		return audit.Report{}, err
	}
	return ledger.Report(audit.DroppedByEmail(demoSeed)), nil
}
