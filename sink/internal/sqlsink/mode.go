package sqlsink

import (
	"fmt"
	"slices"
)

// A Mode says what happens to a row whose key is in the table already.
type Mode string

const (
	Insert Mode = "insert" // the row is rejected; the empty mode means the same
	Upsert Mode = "upsert" // the row replaces columns of the existing one
	Ignore Mode = "ignore" // the existing row stays
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(text []byte) error {
	if *m = Mode(text); !slices.Contains([]Mode{Insert, Upsert, Ignore}, *m) {
		return fmt.Errorf("unknown mode %q; known: insert, upsert, ignore", text)
	}
	return nil
}
