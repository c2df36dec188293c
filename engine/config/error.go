package config

import (
	"fmt"
	"slices"
	"strings"
)

// An Error is one fault in a configuration file. It never contains the value of an
// environment variable; it quotes the variable's name instead.
type Error struct {
	File    string
	Line    int // counted from 1; 0 when the fault has no place in the file
	Column  int // counted from 1, in characters
	Message string
	Hint    string // remedy; may be empty
	Source  string // the original line of the file
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// ErrorHint implements event.Hinter.
func (e *Error) ErrorHint() string { return e.Hint }

// Excerpt returns the source line with a caret below the column, or "".
func (e *Error) Excerpt() string {
	if strings.TrimSpace(e.Source) == "" {
		return ""
	}
	// Keep tabs, so that the caret is below the column on the terminal.
	indent := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, firstRunes(e.Source, e.Column-1))
	return fmt.Sprintf("%5d | %s\n      | %s^", e.Line, e.Source, indent)
}

func firstRunes(s string, n int) string {
	runes := []rune(s)
	return string(runes[:min(max(n, 0), len(runes))])
}

// Errors holds all faults of a configuration, in the order of the file.
type Errors []*Error

func (es Errors) Error() string {
	var s strings.Builder
	for i, e := range es {
		if i > 0 {
			s.WriteByte('\n')
		}
		s.WriteString(e.Error())
		if excerpt := e.Excerpt(); excerpt != "" {
			s.WriteString("\n" + excerpt)
		}
		if e.Hint != "" {
			s.WriteString("\n      hint: " + strings.ReplaceAll(e.Hint, "\n", "\n        "))
		}
	}
	return s.String()
}

// sorted returns the errors in the order of the file, or nil without errors.
func (es Errors) sorted() error {
	if len(es) == 0 {
		return nil
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return es
}

// Join joins faults of one file. If one of the errors is neither an *Error nor Errors, Join
// returns that error alone.
func Join(errs ...error) error {
	var all Errors
	for _, err := range errs {
		switch e := err.(type) {
		case nil:
		case Errors:
			all = append(all, e...)
		case *Error:
			all = append(all, e)
		default:
			return err
		}
	}
	return all.sorted()
}

// LineOf returns line n of a text, counted from 1, or "" if the text has fewer.
func LineOf(text string, n int) string {
	lines := strings.Split(text, "\n")
	if n > len(lines) {
		return ""
	}
	return strings.TrimRight(lines[n-1], "\r")
}
