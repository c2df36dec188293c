package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// An uploader uploads the new files of a table. It remembers them between the attempts of one
// publication, which is shorter than the grace time of files that no snapshot names.
type uploader struct {
	uploaded map[string]uploadedFile // by address
	uploads  int
}

// An uploadedFile is a file that was uploaded or found.
type uploadedFile struct {
	footer   [sha256.Size]byte // sum
	modified time.Time
}

// errUploadTime reports a table with more new files than its upload time allows.
var errUploadTime = errors.New("the time for this table is over; the next order uploads the rest")

// put stores a file below a location, unless it is there.
func (w *uploader) put(ctx context.Context, objects objectStore, location, name string, p *publishedFile) error {
	one := uploadedFile{sha256.Sum256(p.footer), time.Now()}
	if w.uploaded[location+name].footer == one.footer {
		return nil
	}
	modified, found, err := objects.find(ctx, name, p)
	switch {
	case err != nil:
		return fmt.Errorf("put %s: %w", name, err)
	case found:
		one.modified = modified
	case w.uploads > 0 && isUploadTimeOver(ctx):
		return errUploadTime
	default:
		if err := objects.put(ctx, name, p); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
		w.uploads++
	}
	w.uploaded[location+name] = one
	return nil
}

// Files older than renewAge get a new modification time before they are committed, so that another
// committer's tidy does not remove them.
var renewAge = lake.DefaultTidy().Grace / 2

// renew gives a file below a location a new modification time if it is old.
func (w *uploader) renew(ctx context.Context, objects objectStore, location, name string) error {
	one := w.uploaded[location+name]
	if time.Since(one.modified) < renewAge {
		return nil
	}
	one.modified = time.Now()
	if err := objects.renew(ctx, name); err != nil {
		return fmt.Errorf("renew %s: %w", name, err)
	}
	w.uploaded[location+name] = one
	return nil
}
