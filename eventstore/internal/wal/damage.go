package wal

import (
	"fmt"
	"strings"
)

// A Damage is something acknowledged that a log no longer has. How many rows it had is
// unknown.
type Damage struct {
	Path string // of the file
	Span Span   // the part of the file that has no readable entries; zero if the file is of no use
	What string // behind the file's name, what is wrong
}

func (d Damage) String() string {
	if d.Span == (Span{}) {
		return fmt.Sprintf("%s: %s", d.Path, d.What)
	}
	return fmt.Sprintf("%s: the %d bytes from offset %d on %s", d.Path, d.Span.End-d.Span.Begin, d.Span.Begin, d.What)
}

// A DamageError says what is missing in a log that cannot be trusted.
type DamageError struct{ Damage []Damage }

func (e *DamageError) Error() string {
	parts := make([]string, len(e.Damage))
	for i, d := range e.Damage {
		parts[i] = d.String()
	}
	return "the event log has lost an unknown number of rows: " + strings.Join(parts, "; ")
}

// ErrorHint implements event.Hinter.
func (e *DamageError) ErrorHint() string {
	return "restore the folder from a backup, or open it read-only to read the rows that are left"
}
