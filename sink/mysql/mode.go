package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A Method is a way into the table.
type Method string

const (
	Auto Method = "auto" // what this server does fastest
	Rows Method = "insert"
	Bulk Method = "bulk"
	Load Method = "load"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Method) UnmarshalText(text []byte) error {
	if *m = Method(text); !slices.Contains([]Method{Auto, Rows, Bulk, Load}, *m) {
		return fmt.Errorf("unknown method %q; known: auto, insert, bulk, load", text)
	}
	return nil
}

// checkMode holds mode, update and method against each other.
func (c *Config) checkMode() error {
	if c.Mode != table.Insert && c.Method == Load {
		return fmt.Errorf("method: load cannot %s rows: remove it, or use mode: insert", c.Mode)
	}
	return table.CheckUpdate(c.Mode, c.Update, c.Columns)
}

// onDuplicate is how a statement ends that inserts rows, and meets keys that
// the table has. IGNORE would let bad values pass as well, so a column is set to
// what it is.
func (c *Config) onDuplicate(keys []key) (string, error) {
	switch c.Mode {
	case table.Upsert:
		return c.replacing(keys)
	case table.Ignore:
		if len(keys) == 0 {
			return "", &event.PermanentError{
				Err:  errors.New("mode is ignore, and the table has no unique key by which a row could be there already"),
				Hint: "add a primary or unique key to the table, or use mode: insert",
			}
		}
		same := quote(keys[0][0])
		return " ON DUPLICATE KEY UPDATE " + same + " = " + same, nil
	}
	return "", nil
}

// replacing sets the columns to update, or all that are in no key.
func (c *Config) replacing(keys []key) (string, error) {
	filled := func(name string) bool {
		return slices.ContainsFunc(c.Columns, func(column Column) bool { return strings.EqualFold(column.Name, name) })
	}
	if !slices.ContainsFunc(keys, func(k key) bool { return !slices.ContainsFunc(k, func(name string) bool { return !filled(name) }) }) {
		return "", &event.PermanentError{
			Err:  errors.New("mode is upsert, and no primary or unique key of the table consists of columns that are filled"),
			Hint: "add such a key to the table, or use mode: insert",
		}
	}
	names := c.Update
	if len(names) == 0 {
		names = c.besides(keys)
	}
	if len(names) == 0 {
		return "", &event.PermanentError{
			Err:  errors.New("mode is upsert, and every column is part of a key: there is nothing to update"),
			Hint: "use mode: ignore",
		}
	}
	sets := make([]string, len(names))
	for i, name := range names {
		sets[i] = quote(name) + " = VALUES(" + quote(name) + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(sets, ", "), nil
}

// besides are the columns that are part of no key.
func (c *Config) besides(keys []key) (names []string) {
	for _, column := range c.Columns {
		same := func(name string) bool { return strings.EqualFold(name, column.Name) }
		if !slices.ContainsFunc(keys, func(k key) bool { return slices.ContainsFunc(k, same) }) {
			names = append(names, column.Name)
		}
	}
	return names
}
