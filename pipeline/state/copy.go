package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

// CopyStatus is what this machine has of a unit.
type CopyStatus struct {
	nodedb.UnitStats
	Open bool `json:"open"` // this process owns the unit
	// Following says that this process applies the notes of another one, which owns the unit. Lag is
	// how many it has yet to apply, and Refused why it cannot.
	Following bool   `json:"following,omitempty"`
	Lag       uint64 `json:"lag_notes,omitempty"`
	Refused   string `json:"refused,omitempty"`
}

// Copies returns the names of the units that have a folder on this machine. A name that is too
// long for a folder is missing.
func (c *Config) Copies() (names []string, err error) {
	entries, err := os.ReadDir(c.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the copies of state %s: %w", c.Name, err)
	}
	for _, e := range entries {
		if name, err := url.PathUnescape(e.Name()); err == nil && e.IsDir() && !strings.Contains(e.Name(), "~") {
			names = append(names, name)
		}
	}
	return names, nil
}

// HasCopy reports whether this machine has a copy of a unit, which may be an older one.
func (c *Config) HasCopy(unit string) bool {
	_, err := os.Stat(c.folderOf(unit))
	return err == nil
}

// CopyStatus describes the copy of a unit that no process has open; nil if there is none.
func (c *Config) CopyStatus(unit string) (*CopyStatus, error) {
	if _, err := os.Stat(c.folderOf(unit)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var status CopyStatus
	err := c.open(unit, func(u *nodedb.Unit) (err error) {
		status.UnitStats, err = u.Stats()
		return err
	})
	return &status, err
}

// View calls f with what the copy of a unit has that no process has open. Changes whose notes the
// copy has not on disk are missing.
func (c *Config) View(ctx context.Context, unit string, f func(*nodedb.Tx) error) error {
	if _, err := os.Stat(c.folderOf(unit)); err != nil {
		return event.WithHint(fmt.Errorf("unit %s of state %s has no copy on this machine", unit, c.Name), "ask the engine of the machine that has it")
	}
	err := c.open(unit, func(u *nodedb.Unit) error { return u.View(ctx, f) })
	if errors.Is(err, nodedb.ErrIncomplete) {
		return event.WithHint(err, "start the engine, which completes the copy")
	}
	return err
}

func (c *Config) open(unit string, use func(*nodedb.Unit) error) error {
	u, err := nodedb.OpenUnit(c.folderOf(unit), nodedb.UnitOptions{})
	if err != nil {
		return err
	}
	return errors.Join(use(u), u.Close())
}

// Status describes the copy.
func (u *Unit) Status() (*CopyStatus, error) {
	stats, err := u.copy.Stats()
	return &CopyStatus{UnitStats: stats, Open: true}, err
}
