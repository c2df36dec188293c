package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/sink"
)

// A replica is the copy of a unit on this machine, and the last note that is in it. Each note is
// compared with the one before by its checksum.
type replica struct {
	config *Config
	name   string
	copy   *nodedb.Unit // nil until it is open
	share  *share       // of the budget that the copy uses

	last      uint64 // number of the last note; 0 if there is none
	sum       uint64 // its checksum
	clock     time.Time
	delivered uint64 // every sink has the outputs of the notes up to it
}

// useCopy opens the copy in a folder, which may be empty or missing.
func (r *replica) useCopy(folder string) (err error) {
	if err := r.createFolder(); err != nil {
		return err
	}
	if r.copy, err = r.openCopy(folder); err != nil {
		return err
	}
	r.share = newShare(r.config.Budget, r.copy)
	r.last, _, r.sum = r.copy.Positions()
	return nil
}

// createFolder creates the folder of all copies.
func (r *replica) createFolder() error {
	if err := durable.MkdirAll(r.config.Folder, 0o700); err != nil {
		return fmt.Errorf("create the folder of state %s: %w", r.config.Name, err)
	}
	return nil
}

func (r *replica) openCopy(folder string) (*nodedb.Unit, error) {
	unit, err := nodedb.OpenUnit(folder, r.config.copyOptions())
	switch {
	case errors.Is(err, nodedb.ErrCorrupt):
		return nil, r.refuse(fmt.Errorf("the copy of unit %s in %s: %w", r.name, folder, err), r.config.hintOfDamage(r.name))
	case errors.Is(err, nodedb.ErrNewer):
		return nil, r.refuse(fmt.Errorf("the copy of unit %s in %s: %w", r.name, folder, err), event.HintOf(nodedb.ErrNewer))
	case err != nil:
		return nil, fmt.Errorf("open the copy of unit %s: %w", r.name, err)
	}
	return unit, nil
}

func (c *Config) copyOptions() nodedb.UnitOptions {
	return nodedb.UnitOptions{FlushAge: c.FlushAge, PendingBytes: c.Budget.bytes(), NeverWait: c.Budget != nil}
}

// checkNotSetBack refuses a copy that is ahead of the last note at the home.
func (r *replica) checkNotSetBack(last uint64) error {
	_, begun, _ := r.copy.Positions()
	if begun = max(begun, r.last); begun <= last {
		return nil
	}
	return r.refuse(fmt.Errorf("the copy of unit %s in %s has changes up to note %d, and sink %s only notes up to %d",
		r.name, r.config.folderOf(r.name), begun, r.config.HomeName, last),
		r.config.hintOfSetBack(r.name))
}

// compare refuses a copy whose last note is another one at the home.
func (r *replica) compare(stored *sink.Note) error {
	if stored.Sum != r.sum {
		return r.refuse(fmt.Errorf("note %d of unit %s has another checksum in sink %s than in the copy in %s",
			r.last, r.name, r.config.HomeName, r.config.folderOf(r.name)),
			"the copy belongs to another history, such as that of another database")
	}
	note, err := decodeNote(stored)
	if err != nil {
		return r.refuseNote(stored, err)
	}
	r.clock, r.delivered = note.Clock, note.Delivered
	return nil
}

// take applies the next note.
func (r *replica) take(stored *sink.Note) error {
	note, err := decodeNote(stored)
	if err == nil && (note.Number != r.last+1 || note.Previous != r.sum) {
		err = fmt.Errorf("it does not continue note %d", r.last)
	}
	if err == nil {
		if err = applyNote(r.copy, note); errors.Is(err, nodedb.ErrNewer) {
			return r.refuse(fmt.Errorf("note %d of unit %s: %w", note.Number, r.name, err), event.HintOf(nodedb.ErrNewer))
		} else if err != nil && !errors.Is(err, nodedb.ErrCorrupt) {
			return fmt.Errorf("unit %s: %w", r.name, err)
		}
	}
	if err != nil {
		return r.refuseNote(stored, err)
	}
	r.last, r.sum, r.clock, r.delivered = note.Number, note.Sum, note.Clock, note.Delivered
	return nil
}

func applyNote(to *nodedb.Unit, note *Note) error {
	if err := to.Apply(note.Number, note.Sum, note.Changes); err != nil {
		return fmt.Errorf("apply note %d to the copy: %w", note.Number, err)
	}
	return nil
}

func (r *replica) refuseNote(stored *sink.Note, err error) error {
	return r.refuse(fmt.Errorf("note %d of unit %s in sink %s: %w", stored.Number, r.name, r.config.HomeName, err), "restore the database from a backup")
}

func (r *replica) refuse(err error, hint string) error {
	return &RefusedError{r.name, &event.PermanentError{Err: err, Hint: hint}}
}

// View calls f with the committed state.
func (r *replica) View(ctx context.Context, f func(*nodedb.Tx) error) error {
	return r.copy.View(ctx, f)
}

// OpenReader opens a reader of the committed state.
func (r *replica) OpenReader() (*nodedb.Reader, error) { return r.copy.OpenReader() }

// closeRetry is the wait before the copy is closed again, after the disk was full.
const closeRetry = time.Second

// closeCopy closes the copy. While the disk is full that fails, and the folder stays locked: then
// it goes on in the background until there is room. The home keeps the notes that the copy lacks.
func (r *replica) closeCopy() error {
	r.share.end()
	err := r.copy.Close()
	if !errors.Is(err, nodedb.ErrDisk) {
		return err
	}
	go func() {
		for errors.Is(r.copy.Close(), nodedb.ErrDisk) {
			time.Sleep(closeRetry)
		}
	}()
	return err
}
