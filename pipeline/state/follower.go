package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/sink"
)

// A Follower keeps the copy of a unit up to date that another process owns, so that this process
// can take the unit over without delay. It reads the notes at the home, and changes nothing there.
// It is safe for concurrent use.
type Follower struct {
	mu      sync.Mutex // held while notes are applied
	replica            // copy does not change
	seen    uint64     // number of the last note at the home
	since   time.Time  // when it was first seen
	before  uint64     // number of the last note at the time of the attempt before
	lag     atomic.Uint64
}

// noteSyncTime is how long a home may take to make the last note that it shows durable. Older notes
// are durable, because a note is written only after the commit of the one before has returned.
const noteSyncTime = time.Second

// Follow opens the copy of a unit, which may be empty or missing. With an archive, it first replaces
// one that is too far behind. A *RefusedError says why it cannot
// be used. Any other error may be transient.
func Follow(ctx context.Context, c *Config, name string) (*Follower, error) {
	f := &Follower{replica: replica{config: c, name: name}}
	if c.Archive != nil {
		units, err := c.Units(ctx)
		if err != nil {
			return nil, err
		}
		u := makeUnit(f.replica)
		u.home = &unownedUnit{c, name}
		if err := u.restoreOutdated(ctx, units[name]); err != nil {
			return nil, err
		}
	}
	if err := f.useCopy(c.folderOf(name)); err != nil {
		return nil, err
	}
	return f, nil
}

// An unownedUnit reads the notes of a unit that another process owns. It implements sink.Unit.
type unownedUnit struct {
	config *Config
	name   string
}

// Status implements sink.Unit.
func (r *unownedUnit) Status(ctx context.Context) (sink.UnitStatus, error) {
	units, err := r.config.Units(ctx)
	return units[r.name], err
}

// Notes implements sink.Unit.
func (r *unownedUnit) Notes(ctx context.Context, from uint64, visit func(*sink.Note) error) error {
	return r.config.Home.ReadNotes(ctx, r.config.homeName(r.name), from, visit)
}

// Trim implements sink.Unit.
func (r *unownedUnit) Trim(context.Context, uint64) error { return sink.ErrFenced }

// Close implements sink.Unit.
func (r *unownedUnit) Close() error { return nil }

// NeedsNotes reports whether CatchUp has something to do, given the number of the last note at the
// home.
func (f *Follower) NeedsNotes(last uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last != last || f.before != last
}

// CatchUp applies the notes that the home has. last is the number of the last one, as
// sink.UnitStore.LastNotes returned it. CatchUp leaves that one out until it is certain that the home
// does not lose it. A *RefusedError says that the copy cannot follow the home. Any other error
// may be transient.
func (f *Follower) CatchUp(ctx context.Context, last uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.checkNotSetBack(last); err != nil {
		return err
	}
	defer func(last uint64) { f.before = last }(last)
	f.lag.Store(max(f.before, f.last) - f.last)
	now := time.Now()
	if last != f.seen {
		f.seen, f.since = last, now
	}
	if now.Sub(f.since) < noteSyncTime && last > 0 {
		last--
	}
	if f.last >= last {
		return nil
	}
	err := f.config.Home.ReadNotes(ctx, f.config.homeName(f.name), f.last+1, func(stored *sink.Note) error {
		if stored.Number > last {
			return errRead
		}
		if err := f.share.waitForRoom(ctx, func(error) {}); err != nil { // the lag shows that it waits
			return err
		}
		if err := f.take(stored); err != nil {
			return err
		}
		f.lag.Store(max(f.before, f.last) - f.last)
		return nil
	})
	switch {
	case errors.Is(err, errRead):
		return nil
	case errors.Is(err, sink.ErrNotesTrimmed):
		return f.refuse(fmt.Errorf("the copy of unit %s in %s has changes up to note %d, and %w", f.name, f.config.folderOf(f.name), f.last, err),
			"bring the folder of the state here from the worker that owns the unit, while neither runs")
	case err != nil:
		return fmt.Errorf("follow unit %s: %w", f.name, err)
	}
	return nil
}

var errRead = errors.New("all notes were read")

// Open takes the unit over, as Open does, and passes the copy on to it. After an error the follower
// still has the copy.
func (f *Follower) Open(ctx context.Context) (*Unit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := makeUnit(f.replica)
	err := u.open(ctx)
	f.last, f.sum, f.clock, f.delivered = u.last, u.sum, u.clock, u.delivered
	if err != nil {
		if u.home != nil {
			err = errors.Join(err, u.home.Close())
		}
		return nil, err
	}
	u.start()
	return u, nil
}

// Status describes the copy.
func (f *Follower) Status() (*CopyStatus, error) {
	stats, err := f.copy.Stats()
	return &CopyStatus{UnitStats: stats, Following: true, Lag: f.lag.Load()}, err
}

// Lag returns how many notes the home has had for a while that the copy lacks.
func (f *Follower) Lag() uint64 { return f.lag.Load() }

// Close writes the copy to disk and closes it, unless Open has passed it on.
func (f *Follower) Close() error { return f.closeCopy() }
