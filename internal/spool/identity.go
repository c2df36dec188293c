package spool

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// An identity says what the positions of a spool mean.
type identity struct {
	ID   string      `json:"name"`
	Skip [][2]uint64 `json:"skip,omitempty"` // first and end of what sinks had when the spool took its ID
	// Unverified is where the spool ended when it was opened, until MarkVerified:
	// before that, sinks can have nothing past it from this spool, whatever a process
	// in between has appended.
	Unverified *uint64 `json:"unverified,omitempty"`

	verified bool // in this process
}

func (i *identity) skipped() event.Ranges {
	var all event.Ranges
	for _, s := range i.Skip {
		all.Add(event.Range{First: s[0], Count: s[1] - s[0]})
	}
	return all
}

func (s *Spool) loadIdentity() error {
	text, err := durable.ReadFile(filepath.Join(s.folder, identityFile))
	if errors.Is(err, os.ErrNotExist) {
		return s.takeNewID(nil)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.identity); err != nil || s.identity.ID == "" {
		return event.WithHint(fmt.Errorf("%s is damaged", identityFile), "restore it from a backup: the positions of the sinks refer to the ID in it")
	}
	return nil
}

// takeNewID gives the spool a new ID, under which it skips the given positions.
func (s *Spool) takeNewID(skip event.Ranges) error {
	fresh := identity{ID: rand.Text()}
	for _, r := range skip {
		fresh.Skip = append(fresh.Skip, [2]uint64{r.First, r.End()})
	}
	if err := s.saveIdentity(fresh); err != nil {
		return err
	}
	s.identity = fresh
	return nil
}

func (s *Spool) saveIdentity(i identity) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(s.folder, identityFile), text, 0o600)
}
