package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/engine/replay"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

type replayCommand struct {
	configFlags
	storedEvents
	Pipeline   string   `placeholder:"NAME" help:"The pipeline, if the configuration has several."`
	Into       []string `placeholder:"PLACE" sep:"none" help:"Write to this table, folder, key, topic or URL; SINK=PLACE if the pipeline has several sinks. May be repeated."`
	Skip       []string `placeholder:"SINK" help:"Write nothing to this sink. May be repeated."`
	Rate       string   `placeholder:"N/s" help:"Deliver at most N events per second; also N/m and N/h (default: no limit)."`
	Name       string   `placeholder:"NAME" help:"Name of the replay (default: made of the pipeline and the places)."`
	FailOnDead bool     `help:"Exit with 1 if an event became a dead letter."`
	logFlags
}

func (replayCommand) Help() string {
	return `Sends stored events through a pipeline once more: through its script, its computed columns and its sinks,
which write to another place. That is another table of the same database or event store, another folder,
or another key, topic or URL on the same server. The command refuses a place that a sink of the pipeline
writes to, in any spelling, and a sink without another place. --skip leaves a sink out.

The events are those of a file (- is standard input), of a source (--source, or --waiting for the
pipeline's own), the dead letters of the pipeline, or the rows of a table of the event store. The command
copies them into a folder of its own below the data folder, and leaves the originals, the positions and
the dead letters of the pipeline as they are. It runs beside an engine or without one.

Each event of a replay reaches each sink with that sink's guarantee, exactly once unless "perigee list
sinks" says otherwise, even if the replay is interrupted or killed. The same command continues an
interrupted replay, and refuses one that has finished: repeating it needs another --name.

Dead letters are kept in the folder of the replay; the command prints their number and the first ones.
SIGINT (Ctrl-C) and SIGTERM deliver the events already read, and end; a second signal ends at once.

Exit code: 0 if all events are done; 1 if the replay failed, if every event became a dead letter, or with
--fail-on-dead if one event did; 130 or 143 after a signal.

Examples:
  perigee replay pipeline.yaml events.ndjson.zst --into emails_v2
  perigee replay pipeline.yaml --dead-letters --into emails_repaired --name friday
  perigee replay pipeline.yaml --source redis://127.0.0.1:6379/emails --last 10000 --into emails_new --rate 5000/s
  perigee replay pipeline.yaml events.ndjson --pipeline mails --into db=emails_v2 --into archive=/srv/again --skip audit`
}

func (r *replayCommand) Run(c *console) error {
	rate, err := parseRate(r.Rate)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return err
	}
	conf, err := r.load(context.Background(), c)
	if err != nil {
		return err
	}
	options := engineOptions(c, r.Allow, nil)
	plan, err := replay.NewPlan(conf, options.Kinds, replay.Options{Pipeline: r.Pipeline, Into: r.Into, Skip: r.Skip, Name: r.Name})
	if err != nil {
		return err
	}
	replayed, err := r.open(c, conf, plan)
	if err != nil {
		return err
	}
	replayed.Rate = rate
	result, err := r.deliver(c, replayed)
	err = errors.Join(err, replayed.Close())
	if err != nil {
		return err
	}
	return r.report(c, replayed, result)
}

// open copies the events, or finds them copied.
func (r *replayCommand) open(c *console, conf *config.Config, plan *replay.Plan) (*replay.Replay, error) {
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	replayed, err := replay.Open(plan, r.describe(), func(add func([]byte) error) error {
		err := r.read(c, conf, plan.Pipeline.Name, func(event []byte) error {
			if interrupted.Err() != nil {
				return errCopyInterrupted
			}
			return add(event)
		})
		switch {
		case interrupted.Err() != nil: // reading a source ends early then
			return errCopyInterrupted
		case errors.Is(err, errLimitReached):
			return nil
		}
		return err
	})
	if errors.Is(err, errCopyInterrupted) {
		return nil, event.WithHint(errCopyInterrupted, "nothing was written: run the command again to copy the events from the start")
	}
	return replayed, err
}

var errCopyInterrupted = errors.New("interrupted while the events were copied")

// describe says where the events come from, without passwords.
func (r *replayCommand) describe() string {
	what := ""
	switch {
	case r.File == "-":
		what = "standard input"
	case r.File != "":
		path, err := filepath.Abs(r.File)
		if err != nil {
			path = r.File
		}
		what = path
	case r.Source != "":
		address, _, _ := strings.Cut(r.Source, "?")
		if at := strings.LastIndexByte(address, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(address, "://")
			address = scheme + "://" + address[at+1:]
		}
		what = address
	case r.Waiting:
		what = "--waiting"
	case r.DeadLetters:
		what = "--dead-letters"
	default:
		what = "table " + r.Table
	}
	switch {
	case r.Limit > 0:
		what += fmt.Sprintf(" --events %d", r.Limit)
	case r.Last > 0:
		what += fmt.Sprintf(" --last %d", r.Last)
	}
	return what
}

// A replayResult is what came of a run of a replay.
type replayResult struct {
	dead    int // dead letters of the replay, also of earlier runs
	first   []admin.DeadLetter
	allDied bool
	code    exitError // of a signal
}

// deliver runs the pipeline.
func (r *replayCommand) deliver(c *console, replayed *replay.Replay) (result replayResult, err error) {
	display := newDisplay(c.err)
	options := engineOptions(c, r.Allow, r.newLogger(c, display))
	if options.OnPoint, err = killAt(os.Getenv(killVariable)); err != nil {
		return result, err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if tables := replayed.Plan.EventTables(); len(tables) > 0 {
		if err := useStoreOf(ctx, &options, replayed.Plan.Data(), tables); err != nil {
			return result, err
		}
	} else {
		options.Services = nil
	}
	options.Kinds, options.NoSocket = replayed.Kinds(options.Kinds), true
	e, err := engine.Open(ctx, replayed.Config(), options)
	if err != nil {
		return result, err
	}
	r.announce(c, replayed)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	signals := handleSignals(e, e.Log(), stop, nil)
	hide := display.show(replayBar(replayed))
	err = e.Run(ctx)
	hide()
	result.code = signals.stop()
	signal.Stop(interrupted)
	select {
	case s := <-interrupted:
		result.code = exitError(128 + int(s.(syscall.Signal)))
	default:
	}
	result.readDead(e)
	_, result.allDied = deadEvents(e.Status())
	if result.code != 0 {
		err = nil // ctx has ended
	}
	return result, errors.Join(err, e.Close())
}

// useStoreOf lets sinks write to the event store in another data folder.
func useStoreOf(ctx context.Context, options *engine.Options, data string, tables map[string]string) error {
	store, err := eventservice.OpenElsewhere(ctx, data, tables)
	if err != nil {
		return err
	}
	own := store.Kinds()
	options.Services = []engine.Service{store}
	options.Kinds.Sinks = append(own, slices.DeleteFunc(options.Kinds.Sinks, func(k sink.Kind) bool { return k.Name == own[0].Name })...)
	return nil
}

func (r *replayCommand) announce(c *console, replayed *replay.Replay) {
	begins := "replaying"
	if replayed.Continued {
		begins = "continuing replay " + replayed.Plan.Name + " with"
	}
	var targets []string
	for _, t := range replayed.Plan.Targets {
		targets = append(targets, t.String())
	}
	fmt.Fprintf(c.err, "perigee: %s %s through pipeline %s: %s\n", begins, countOf(int(replayed.Count()), "event"), replayed.Plan.Pipeline.Name, strings.Join(targets, ", "))
}

// replayBar draws the progress of a replay.
func replayBar(replayed *replay.Replay) func(time.Duration) string {
	total, before := replayed.Count(), replayed.Done()
	return func(elapsed time.Duration) string {
		done := replayed.Done()
		rate := perSecond(done-min(before, done), elapsed)
		before = done
		line := fmt.Sprintf("%s %s of %s events  %s/s", bar(done, total), thousands(done), thousands(total), thousands(rate))
		if rate > 0 && done < total {
			line += "  " + (time.Duration((total-done)/rate) * time.Second).String() + " left"
		}
		return line
	}
}

// Dead letters at the end of a replay: how many are shown, and how much of their errors.
const (
	deadShown = 3
	deadWidth = 200
)

// readDead reads the dead letters of the replay.
func (result *replayResult) readDead(e *engine.Engine) {
	ctx := context.Background()
	for letter, err := range e.Admin().DeadLetters(ctx, admin.Filter{}) {
		if err != nil {
			return // the log has the errors of the data folder
		}
		if result.dead++; result.dead <= deadShown {
			result.first = append(result.first, letter)
		}
	}
}

// report prints what came of the replay, and returns the exit code.
func (r *replayCommand) report(c *console, replayed *replay.Replay, result replayResult) error {
	done, total := replayed.Done(), replayed.Count()
	fmt.Fprintf(c.err, "perigee: replay %s: %s of %s done\n", replayed.Plan.Name, thousands(done), countOf(int(total), "event"))
	if result.dead > 0 {
		printReplayDead(c.err, replayed, result)
	}
	switch {
	case done < total && result.code != 0:
		fmt.Fprintln(c.err, "perigee: hint: continue with the same command")
		return result.code
	case done < total:
		return event.WithHint(fmt.Errorf("replay %s is incomplete", replayed.Plan.Name), "continue with the same command")
	case result.allDied || r.FailOnDead && result.dead > 0:
		return exitError(exitFailure)
	}
	return nil
}

func printReplayDead(w io.Writer, replayed *replay.Replay, result replayResult) {
	fmt.Fprintf(w, "perigee: %s:\n", countOf(result.dead, "dead letter"))
	for _, letter := range result.first {
		fmt.Fprintf(w, "  event %d: %s: %s\n", letter.Position+1, letter.Stage, firstLine(letter.Error, deadWidth))
	}
	if more := result.dead - len(result.first); more > 0 {
		fmt.Fprintf(w, "  and %s more\n", thousands(uint64(more)))
	}
	fmt.Fprintf(w, "perigee: hint: perigee dlq list --data %s\n", quoteArg(replayed.Folder()))
}

// parseRate reads N, N/s, N/m or N/h as events per second.
func parseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, given := strings.Cut(text, "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	if !given {
		seconds = 1
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || seconds == 0 || !(n > 0) || n > 1e12 {
		return 0, event.WithHint(usageError(fmt.Sprintf("invalid rate %q", text)), "use a number of events per second, minute or hour: 5000/s, 100/m, 10/h")
	}
	return n / seconds, nil
}
