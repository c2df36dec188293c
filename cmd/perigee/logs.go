package main

import (
	"io"
	"log/slog"

	"github.com/lmittmann/tint"

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
	switch {
	case f.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(terminal.NewWriter(w), &slog.HandlerOptions{Level: f.LogLevel}))
	case terminal.Is(c.err):
		_, noColor := c.lookup("NO_COLOR")
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: f.LogLevel, TimeFormat: "15:04:05", NoColor: noColor, ReplaceAttr: escapeAttr}))
	}
	return slog.New(slog.NewTextHandler(terminal.NewWriter(w), &slog.HandlerOptions{Level: f.LogLevel}))
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
