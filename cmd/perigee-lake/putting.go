package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// A putter puts the new files of a table. It remembers them between the attempts of one
// publication, which is shorter than the grace time of files that no snapshot names.
type putter struct {
	stored map[string]stored // by address
	puts   int
}

// A stored is a file that was put or found.
type stored struct {
	footer   [sha256.Size]byte // sum
	modified time.Time
}

// errTurn reports a table that has more new files than its turn has time for.
var errTurn = errors.New("the next order puts the others")

// put stores a file below a location, unless it is there.
func (w *putter) put(ctx context.Context, objects objectStore, location, name string, p *published) error {
	one := stored{sha256.Sum256(p.footer), time.Now()}
	if w.stored[location+name].footer == one.footer {
		return nil
	}
	modified, found, err := objects.find(ctx, name, p)
	switch {
	case err != nil:
		return fmt.Errorf("put %s: %w", name, err)
	case found:
		one.modified = modified
	case w.puts > 0 && isTurnOver(ctx):
		return errTurn
	default:
		if err := objects.put(ctx, name, p); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
		w.puts++
	}
	w.stored[location+name] = one
	return nil
}

// renewAge is the age from which on files are made new before they are committed: another
// committer may be tidying the table, which removes files that no snapshot names.
var renewAge = lake.DefaultTidy().Grace / 2

// renew makes a file below a location new if it is old.
func (w *putter) renew(ctx context.Context, objects objectStore, location, name string) error {
	one := w.stored[location+name]
	if time.Since(one.modified) < renewAge {
		return nil
	}
	one.modified = time.Now()
	if err := objects.renew(ctx, name); err != nil {
		return fmt.Errorf("renew %s: %w", name, err)
	}
	w.stored[location+name] = one
	return nil
}
