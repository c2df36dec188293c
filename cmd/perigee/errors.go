package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/perigeedb/perigee/internal/terminal"
)

// An exitError ends the command with an exit code and prints nothing.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// A usageError is a mistake in the command line.
type usageError string

func (u usageError) Error() string { return string(u) }

// exitCode prints the error that a command returned, and returns the exit code.
func exitCode(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	printError(w, err, "")
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// printError prints an error with its own hint or the given one:
//
//	perigee: error: the fault
//	perigee: hint: the remedy
func printError(w io.Writer, err error, hint string) { printMessage(w, "error", err, hint) }

// printMessage is like printError, with another word instead of error.
func printMessage(w io.Writer, word string, err error, hint string) {
	for _, p := range problemsOf(word, err) {
		if p.at != nil {
			fmt.Fprintf(w, "perigee: %s: %s\n", word, terminal.Escape(p.at.Error()))
			if excerpt := p.at.Excerpt(); excerpt != "" {
				fmt.Fprintln(w, terminal.Escape(excerpt))
			}
		} else {
			fmt.Fprintf(w, "perigee: %s: %s\n", word, indentLines(p.Message))
		}
		if hint := cmp.Or(p.Hint, hint); hint != "" {
			fmt.Fprintf(w, "perigee: hint: %s\n", indentLines(hint))
		}
	}
}

// indentLines indents all lines of a message but the first.
func indentLines(s string) string {
	return strings.ReplaceAll(terminal.Escape(strings.TrimSpace(s)), "\n", "\n  ")
}
