package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
)

type runCommand struct {
	configFlags
	logFlags
	FailOnDead bool `help:"Exit with 1 if an event became a dead letter."`
}

func (runCommand) Help() string {
	return `Runs every pipeline of the configuration until its source ends; a queue never ends.

SIGTERM and SIGINT (Ctrl-C) drain: the engine delivers the events that it has read, then exits. A second
signal stops it at once. Neither loses an event: the next run reads unfinished events again.

SIGHUP reloads the configuration and restarts only the pipelines that changed. If "perigee check" would
reject the new configuration, nothing changes. SIGHUP also checks for new versions of scripts. Without
it, the engine detects changed files within a second, and checks other hosts every 30 s. It tries each
new version first, and rejects one that fails.

While the engine runs, /metrics, /readyz and /livez answer at the http address (default 127.0.0.1:4290),
and "perigee status", "query", "dlq", "pause" and "position" reach it through its data folder.

Exit code: 0 if all events that were read are committed; 1 if a pipeline failed, if every event of one
became a dead letter, or with --fail-on-dead if one event did; 130 or 143 after a second signal.

Examples:
  perigee run pipeline.yaml
  perigee run https://config.example.com/pipeline.yaml --allow config.example.com
  MYSQL_PASSWORD=secret perigee run examples/email/redis-mysql.yaml --log-format json`
}

func (r *runCommand) Run(c *console) error {
	display := newDisplay(c.err)
	level := new(slog.LevelVar)
	level.Set(r.LogLevel)
	options := engineOptions(c, r.Allow, r.newLoggerAt(level, c, display))
	options.LogLevel = level
	onPoint, err := killAt(os.Getenv(killVariable))
	if err != nil {
		return err
	}
	options.OnPoint = onPoint
	if options.StateFlushAge, err = flushAge(os.Getenv(flushAgeVariable)); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	conf, err := r.load(ctx, c)
	if conf == nil {
		return err
	}
	e, err := engine.Open(ctx, conf, options)
	if err != nil {
		return err
	}
	options.Log = e.Log()
	if usesLua(e.Config()) {
		logLua(options.Log)
	}
	signals := handleSignals(e, options.Log, stop, func() { r.reload(ctx, c, e, options) })
	hide := display.show(progressOf(e))
	err = e.Run(ctx)
	hide()
	code := signals.stop()
	if code == 0 {
		r.summarize(ctx, c.err, e)
	}
	dead, allDied := deadEvents(e.Status())
	err = errors.Join(err, e.Close())
	switch {
	case code != 0:
		return code
	case err == nil && (r.FailOnDead && dead > 0 || allDied):
		return exitError(exitFailure)
	}
	return err
}

// reload reads the configuration again and applies it.
func (r *runCommand) reload(ctx context.Context, c *console, e *engine.Engine, options engine.Options) {
	defer e.CheckScripts()
	conf, err := r.load(ctx, c)
	var changes *engine.Changes
	if conf != nil {
		changes, err = e.Reload(ctx, conf)
	}
	if err != nil {
		options.Log.Error("configuration refused; the old one stays in effect", "error", err)
		return
	}
	options.Log.Info("configuration reloaded", "started", strings.Join(changes.Started, " "), "restarted", strings.Join(changes.Restarted, " "),
		"stopped", strings.Join(changes.Stopped, " "), "unchanged", strings.Join(changes.Unchanged, " "))
}

// deadEvents counts the events that became dead letters, and reports whether every event of
// a pipeline did.
func deadEvents(all []admin.Status) (dead uint64, allDied bool) {
	for _, s := range all {
		dead += s.Dead
		allDied = allDied || s.Events > 0 && s.Dead >= s.Events
	}
	return dead, allDied
}

// summarize prints the pipelines that need attention after a run: those with dead letters,
// and those that read no new events.
func (r *runCommand) summarize(ctx context.Context, w io.Writer, e *engine.Engine) {
	for _, s := range e.Status() {
		switch {
		case s.Dead > 0:
			what := fmt.Sprintf("%d of %d events became dead letters", s.Dead, s.Events)
			if s.Dead >= s.Events {
				what = fmt.Sprintf("every event became a dead letter (%s)", countOf(int(s.Dead), "event"))
			}
			fmt.Fprintf(w, "perigee: pipeline %s: %s\n", s.Pipeline, what)
			fmt.Fprintf(w, "perigee: hint: perigee dlq list --data %s --pipeline %s\n", quoteArg(e.Config().Data), s.Pipeline)
		case s.WhyEmpty != "":
			fmt.Fprintf(w, "perigee: pipeline %s: %s\n", s.Pipeline, s.WhyEmpty)
		case s.Read == 0 && s.Reason == "":
			r.explainNothing(ctx, w, e, s.Pipeline)
		}
	}
}

// positionsTimeout bounds the wait for sinks in the summary of a run.
const positionsTimeout = 5 * time.Second

// explainNothing explains why a pipeline read nothing: the sinks have committed all events.
func (r *runCommand) explainNothing(ctx context.Context, w io.Writer, e *engine.Engine, name string) {
	ctx, cancel := context.WithTimeout(ctx, positionsTimeout)
	defer cancel()
	positions, err := e.Admin().Positions(ctx, admin.PositionFilter{Pipeline: name})
	if err != nil || len(positions) == 0 {
		return // the log has the errors of the sinks
	}
	for _, p := range positions {
		fmt.Fprintf(w, "perigee: pipeline %s: nothing new in partition %s: sink %s has committed %s up to position %d\n",
			p.Pipeline, p.Partition, p.Sink, countOf(int(p.Events), "event"), p.Next)
	}
	fmt.Fprintf(w, "perigee: hint: read again from the start: perigee position set %s %s 0\n", quoteArg(r.Config), name)
}

// quoteArg quotes an argument for a shell if necessary.
func quoteArg(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
		return !strings.ContainsRune("/._-+=:,@%~", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
