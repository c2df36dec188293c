package wal

import (
	"fmt"
	"strings"
)

// A Damage describes acknowledged data that a log has lost. The number of lost rows is
// unknown.
type Damage struct {
	Path string // of the file
	Span Span   // part of the file without readable entries; zero if the whole file is unusable
	What string // description of the damage, to follow the file's name
}

func (d Damage) String() string {
	if d.Span == (Span{}) {
		return fmt.Sprintf("%s: %s", d.Path, d.What)
	}
	return fmt.Sprintf("%s: the %d bytes from offset %d on %s", d.Path, d.Span.End-d.Span.Begin, d.Span.Begin, d.What)
}

// A DamageError reports the data missing from a damaged log.
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
