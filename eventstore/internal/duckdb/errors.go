//go:build linux && cgo

package duckdb

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
)

// An engineError is an error message of DuckDB.
type engineError struct{ message string }

func (e *engineError) Error() string {
	message, _, _ := strings.Cut(e.message, "\n\nPossible solutions:") // users cannot change the suggested settings
	return strings.TrimSpace(message)
}

// NewError returns an error with a message of DuckDB, for ExplainError.
func NewError(message string) error { return &engineError{message} }

// IsOutOfMemory reports whether DuckDB failed for lack of memory.
func IsOutOfMemory(err error) bool {
	e, ok := errors.AsType[*engineError](err)
	return ok && (strings.HasPrefix(e.message, "Out of Memory") || engineMemory.MatchString(e.message))
}

var (
	engineLine   = regexp.MustCompile(`(?m)^LINE (\d+): `)
	engineMemory = regexp.MustCompile(`(?i)failed to (pin|allocate)|could not allocate|std::bad_alloc`)
	engineClass  = regexp.MustCompile(`^[A-Za-z ]+ Error: `)
	engineAdvice = regexp.MustCompile(`(?s)\n+(Did you mean|Candidate bindings?:|Candidate functions:)`)
)

// ExplainError extracts position and message from DuckDB's error about sql. DuckDB shows the
// line with a caret below it and truncates long lines on the left with "...". ExplainError
// therefore locates the column by the text at the caret.
func ExplainError(err error, sql string) error {
	e, ok := errors.AsType[*engineError](err)
	if !ok {
		return err
	}
	text := e.Error()
	q := &event.Fault{}
	if at := engineLine.FindStringSubmatchIndex(text); at != nil {
		q.Line, _ = strconv.Atoi(text[at[2]:at[3]])
		q.Column = caretColumn(text[at[1]:], at[1]-at[0], sqlLine(sql, q.Line))
		text = strings.TrimSpace(text[:at[0]])
	}
	if at := engineAdvice.FindStringIndex(text); at != nil {
		q.Hint = strings.Join(strings.Fields(text[at[0]:]), " ")
		text = text[:at[0]]
	}
	q.Message = strings.TrimSpace(engineClass.ReplaceAllString(text, ""))
	return q
}

// caretColumn returns the column that a caret marks. shown holds the text of the line,
// followed by the line of the caret, which has indent more characters of indentation.
func caretColumn(shown string, indent int, line string) int {
	text, caret, _ := strings.Cut(shown, "\n")
	caret, _, _ = strings.Cut(caret, "\n")
	offset := strings.IndexByte(caret, '^') - indent
	if offset < 0 || offset > len(text) {
		return 1
	}
	whole := strings.TrimPrefix(text, "...")
	cut := len(text) - len(whole)
	start := strings.Index(line, strings.TrimSuffix(whole, "..."))
	return utf8.RuneCountInString(line[:max(start, 0)]) + offset - cut + 1
}

func sqlLine(sql string, n int) string {
	for ; n > 1; n-- {
		_, sql, _ = strings.Cut(sql, "\n")
	}
	line, _, _ := strings.Cut(sql, "\n")
	return line
}
