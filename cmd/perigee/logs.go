package main

import (
	"io"
	"log/slog"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// logFlags are the flags of commands that log.
type logFlags struct {
	LogFormat string     `enum:"text,json" default:"text" help:"Format of the log on standard error: text or json."`
	LogLevel  slog.Level `default:"info" help:"Minimum log level: debug, info, warn or error."`
}

// newLogger returns a log to w, in colours if standard error is a terminal.
func (f logFlags) newLogger(c *console, w io.Writer) *slog.Logger {
	switch {
	case f.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: f.LogLevel}))
	case isTerminal(c.err):
		_, noColor := c.lookup("NO_COLOR")
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: f.LogLevel, TimeFormat: "15:04:05", NoColor: noColor}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: f.LogLevel}))
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
