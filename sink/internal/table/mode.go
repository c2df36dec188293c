package table

import (
	"errors"
	"fmt"
	"slices"
)

// A Mode says what becomes of a row whose key the table has already.
type Mode string

const (
	Insert Mode = "insert" // it is refused; so does the empty mode
	Upsert Mode = "upsert" // it replaces columns of the one that is there
	Ignore Mode = "ignore" // the one that is there stays
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(text []byte) error {
	if *m = Mode(text); !slices.Contains([]Mode{Insert, Upsert, Ignore}, *m) {
		return fmt.Errorf("unknown mode %q; known: insert, upsert, ignore", text)
	}
	return nil
}

// CheckUpdate holds the columns that an upsert is to replace against mode and columns.
func CheckUpdate(mode Mode, update []string, columns []Column) error {
	if mode != Upsert && len(update) > 0 {
		return errors.New("update is only for mode: upsert")
	}
	for _, name := range update {
		if !slices.ContainsFunc(columns, func(column Column) bool { return column.Name == name }) {
			return fmt.Errorf("update: no column is named %q", name)
		}
	}
	return nil
}
