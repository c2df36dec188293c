package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/lmittmann/tint"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/internal/terminal"
)

// logFlags are the flags of commands that log.
type logFlags struct {
	LogFormat string     `enum:"text,json" default:"text" help:"Format of the log on standard error: text or json."`
	LogLevel  slog.Level `default:"info" help:"Minimum log level: debug, info, warn or error."`
}

// newLogger returns a log to w, in colours if standard error is a terminal. It escapes
// messages and values, so that they neither control a terminal nor imitate another line,
// even if the log is read later.
func (f logFlags) newLogger(c *console, w io.Writer) *slog.Logger {
	return f.newLoggerAt(f.LogLevel, c, w)
}

// newLoggerAt is newLogger with a level that may change.
func (f logFlags) newLoggerAt(level slog.Leveler, c *console, w io.Writer) *slog.Logger {
	switch {
	case f.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(terminal.NewWriter(w), &slog.HandlerOptions{Level: level}))
	case terminal.Is(c.err):
		_, noColor := c.lookup("NO_COLOR")
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: "15:04:05", NoColor: noColor, ReplaceAttr: escapeAttr}))
	}
	return slog.New(slog.NewTextHandler(terminal.NewWriter(w), &slog.HandlerOptions{Level: level}))
}

type logLevelCommand struct {
	Level *slog.Level `arg:"" optional:"" placeholder:"LEVEL" help:"debug, info, warn or error; without it, print the present level."`
	dataFlags
}

func (logLevelCommand) Help() string {
	return `Changes which messages a running engine logs, until it ends. Its --log-level is in effect after a start.

Examples:
  perigee log-level debug
  perigee log-level --config pipeline.yaml`
}

func (l *logLevelCommand) Run(c *console) error {
	return l.use(c, func(ctx context.Context, a *admin.Admin) error {
		level, err := a.SetLogLevel(ctx, l.Level)
		if err == nil {
			_, err = fmt.Fprintln(c.out, strings.ToLower(level.String()))
		}
		return err
	})
}

// escapeAttr escapes the message and every value of a log in colours, whose writer cannot
// escape because it must pass the colours.
func escapeAttr(_ []string, a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(terminal.EscapeLine(value.String()))
	case slog.KindAny:
		if _, isLevel := value.Any().(slog.Level); !isLevel {
			a.Value = slog.StringValue(terminal.EscapeLine(value.String()))
		}
	}
	a.Key = terminal.EscapeLine(a.Key)
	return a
}
