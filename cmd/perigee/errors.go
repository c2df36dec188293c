package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/script"
)

// An exit ends the command with a code and no further word.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// conclude reports what a command ended with and returns the exit code.
func conclude(w io.Writer, err error) int {
	var code exit
	var misuse usage
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &misuse):
		report(w, err)
		return exitUsage
	}
	report(w, err)
	return exitFailure
}

// report prints an error the way every command does:
//
//	perigee: error: what is wrong
//	perigee: hint: what to do
func report(w io.Writer, err error) {
	switch e := err.(type) {
	case config.Errors:
		for _, fault := range e {
			report(w, fault)
		}
		return
	case *config.Error:
		fmt.Fprintf(w, "perigee: error: %v\n", e)
		if excerpt := e.Excerpt(); excerpt != "" {
			fmt.Fprintln(w, excerpt)
		}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			report(w, one)
		}
		return
	default:
		fmt.Fprintf(w, "perigee: error: %s\n", indented(err.Error()))
	}
	if hint := event.HintOf(err); hint != "" {
		fmt.Fprintf(w, "perigee: hint: %s\n", indented(hint))
	}
}

// indented keeps the lines of one message together.
func indented(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") }

// scriptFault shows a fault in a script with the line it is on.
func scriptFault(err error, text []byte) error {
	var fault *script.Error
	if !errors.As(err, &fault) || fault.Line == 0 {
		return err
	}
	shown := &config.Error{File: fault.Script, Line: fault.Line, Column: fault.Column, Message: fault.Message, Hint: fault.Hint}
	shown.Source = lineOf(string(text), fault.Line)
	if shown.Column == 0 {
		shown.Column = 1 + len(shown.Source) - len(strings.TrimLeft(shown.Source, " \t"))
	}
	return shown
}

// sqlFault shows a fault in SQL with the line it is on.
func sqlFault(err error, sql string) error {
	var fault *failure
	if !errors.As(err, &fault) || fault.Line == 0 {
		return err
	}
	return &config.Error{
		File: "SQL", Line: fault.Line, Column: fault.Column, Message: fault.Message, Hint: fault.Hint,
		Source: lineOf(sql, fault.Line),
	}
}

// lineOf returns line n of a text, counted from 1, or nothing when it has fewer.
func lineOf(text string, n int) string {
	lines := strings.Split(text, "\n")
	if n > len(lines) {
		return ""
	}
	return strings.TrimRight(lines[n-1], "\r")
}

// A usage error is one in the command line.
type usage string

func (u usage) Error() string { return string(u) }
