package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// A hinted error says what to do about it.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

func withHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}

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
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(w, "perigee: hint: %s\n", indented(hint))
	}
}

// indented keeps the lines of one message together.
func indented(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") }

// hintOf returns the hint that an error in err's chain carries.
func hintOf(err error) string {
	var (
		own    *hinted
		file   *config.Error
		code   *script.Error
		into   *sink.PermanentError
		origin *source.PermanentError
		afar   *failure
		host   *loader.Refused
	)
	switch {
	case errors.As(err, &own):
		return own.hint
	case errors.As(err, &file):
		return file.Hint
	case errors.As(err, &code):
		return code.Hint
	case errors.As(err, &into):
		return into.Hint
	case errors.As(err, &origin):
		return origin.Hint
	case errors.As(err, &afar):
		return afar.Advice
	case errors.As(err, &host):
		return host.Hint()
	}
	return ""
}

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
		File: "SQL", Line: fault.Line, Column: fault.Column, Message: fault.Message, Hint: fault.Advice,
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
