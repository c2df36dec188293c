package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
)

// This file is how a worker keeps copies of units that other workers own. The lease manager
// chooses the units; see standby.go.

const (
	// followInterval is how often the home is asked for new notes, once for all units.
	followInterval = 150 * time.Millisecond
	// applyingMax is how many units apply notes at the same time.
	applyingMax = 4
	// followWait is the time before a unit that could not be followed is tried again.
	followWait = time.Minute
)

// followers are the units that this worker follows. They are safe for concurrent use.
type followers struct {
	p        *Pipeline
	applying chan struct{} // has an item for each unit that applies notes

	leased atomic.Bool // runLeased runs

	mu      sync.Mutex
	all     map[string]*follower
	closing map[string]*follower // whose copies are being closed
	refused map[string]followRefusal
	last    map[string]uint64 // the last note of each unit at the home; nil until that is known
	read    map[string]bool   // units that other pipelines read; see reads.go
	closed  bool              // no more units are read
	stop    func()            // ends keepRead; nil while it does not run
}

// A follower follows one unit.
type follower struct {
	name   string
	added  time.Time
	ctx    context.Context // ends when the copy is taken or given up
	cancel context.CancelFunc
	turn   chan struct{}   // has an item while nobody uses the copy
	ended  chan struct{}   // closed when the copy is closed
	copy   *state.Follower // nil until it is open; guarded by followers.mu
	ready  bool            // it applied all notes at least once; guarded by followers.mu
}

// A followRefusal says why a unit cannot be followed.
type followRefusal struct {
	err   error
	until time.Time // when to try again
}

func newFollowers(p *Pipeline) *followers {
	return &followers{
		p: p, applying: make(chan struct{}, applyingMax),
		all: map[string]*follower{}, closing: map[string]*follower{}, refused: map[string]followRefusal{}, read: map[string]bool{},
	}
}

// runLeased follows units until ctx ends, and then closes the copies that nobody reads.
func (fs *followers) runLeased(ctx context.Context) {
	fs.leased.Store(true)
	fs.run(ctx, func() bool { return true })
	fs.leased.Store(false)
	for _, name := range fs.names() {
		fs.remove(name)
	}
	fs.waitUntilClosed()
}

// run lets followed units catch up until ctx ends, whenever isDue reports that they are to.
func (fs *followers) run(ctx context.Context, isDue func() bool) {
	var applying sync.WaitGroup
	for failing := false; ctx.Err() == nil; sleep(ctx, followInterval) {
		if !isDue() {
			continue
		}
		err := fs.catchUp(ctx, &applying)
		if err != nil && ctx.Err() == nil && !failing {
			fs.p.log.Warn("asking the home for new notes of the state failed", "error", err)
		}
		failing = err != nil
	}
	applying.Wait()
}

// waitUntilClosed returns once the copies that are being closed are.
func (fs *followers) waitUntilClosed() {
	fs.mu.Lock()
	closing := slices.Collect(maps.Values(fs.closing))
	fs.mu.Unlock()
	for _, f := range closing {
		<-f.ended
	}
}

// catchUp lets those units apply notes that have new ones.
func (fs *followers) catchUp(ctx context.Context, applying *sync.WaitGroup) error {
	began := time.Now()
	last, err := fs.p.config.State.LastNotes(ctx)
	if err != nil {
		return err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.last = last
	maps.DeleteFunc(fs.refused, func(_ string, r followRefusal) bool { return began.Sub(r.until) > followWait })
	for _, f := range fs.all {
		if f.added.After(began) {
			continue // its copy may be ahead of the answer
		}
		select {
		case <-f.turn:
		default:
			continue // it still applies those before
		}
		if f.copy != nil && f.ready && !f.copy.NeedsNotes(last[f.name]) {
			f.turn <- struct{}{}
			continue
		}
		applying.Go(func() {
			defer func() { f.turn <- struct{}{} }()
			fs.update(ctx, f, last[f.name])
		})
	}
	return nil
}

// update applies the notes of one unit up to a number.
func (fs *followers) update(ctx context.Context, f *follower, last uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	select {
	case fs.applying <- struct{}{}:
		defer func() { <-fs.applying }()
	case <-ctx.Done():
		return
	}
	err := catchPanic(func() error { return fs.apply(ctx, f, last) })
	if ctx.Err() != nil {
		return
	}
	refused, ok := errors.AsType[*state.RefusedError](err)
	fs.mu.Lock()
	before, repeated := fs.refused[f.name]
	switch {
	case err == nil:
		f.ready = true
		delete(fs.refused, f.name)
	case ok:
		f.ready = false
		fs.refused[f.name] = followRefusal{refused, time.Now().Add(followWait)}
	}
	fs.mu.Unlock()
	switch {
	case ok && !(repeated && before.err.Error() == refused.Error()):
		fs.p.log.Warn("a unit of the state cannot be followed", "unit", f.name, "error", refused, "hint", event.HintOf(refused))
	case err != nil && !ok:
		fs.p.log.Debug("following a unit of the state failed, will retry", "unit", f.name, "error", err)
	}
}

func (fs *followers) apply(ctx context.Context, f *follower, last uint64) error {
	if f.copy == nil { // only the holder of the turn sets it
		opened, err := state.Follow(ctx, fs.p.config.State, f.name)
		if err != nil {
			return err
		}
		fs.mu.Lock()
		f.copy = opened
		fs.mu.Unlock()
	}
	return f.copy.CatchUp(ctx, last)
}

// add begins to follow a unit.
func (fs *followers) add(name string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all[name] != nil {
		return
	}
	f := &follower{name: name, added: time.Now(), turn: make(chan struct{}, 1), ended: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.turn <- struct{}{}
	fs.all[name] = f
}

// remove stops following a unit, unless another pipeline reads it, and closes its copy in the
// background.
func (fs *followers) remove(name string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if !fs.read[name] {
		fs.closeFollower(name)
	}
}

// closeFollower is remove with mu held, also for a unit that another pipeline reads.
func (fs *followers) closeFollower(name string) {
	f := fs.all[name]
	if f == nil {
		return
	}
	delete(fs.all, name)
	fs.closing[name] = f
	f.cancel()
	go func() {
		<-f.turn
		if f.copy != nil {
			if err := f.copy.Close(); err != nil {
				fs.p.log.Warn("closing the copy of a unit failed", "unit", name, "error", err)
			}
		}
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if fs.closing[name] == f {
			delete(fs.closing, name)
		}
		close(f.ended)
	}()
}

// take stops following a unit and returns its copy, which belongs to the caller from then on; nil if
// there is none. It waits until a copy that was given up is closed.
func (fs *followers) take(name string) *state.Follower {
	fs.mu.Lock()
	f, closing := fs.all[name], fs.closing[name]
	if f != nil {
		delete(fs.all, name)
		f.cancel()
	}
	fs.mu.Unlock()
	if closing != nil {
		<-closing.ended
	}
	if f == nil {
		return nil
	}
	<-f.turn
	return f.copy
}

// names returns the units that are followed.
func (fs *followers) names() []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Collect(maps.Keys(fs.all))
}

// isReady reports whether a unit is followed, and could be opened without delay.
func (fs *followers) isReady(name string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.all[name] != nil && fs.all[name].ready
}

// isRefused reports whether a unit could not be followed, and is not to be tried yet.
func (fs *followers) isRefused(name string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return time.Now().Before(fs.refused[name].until)
}

// isNew reports whether the home has no notes of a unit, so that nobody needs a copy to open it.
func (fs *followers) isNew(name string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.last != nil && fs.last[name] == 0
}

// peek returns the copy of a unit that is followed; nil if there is none.
func (fs *followers) peek(name string) *state.Follower {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.all[name]; f != nil {
		return f.copy
	}
	return nil
}

// refusal returns why a unit could not be followed when that was last tried, or nil.
func (fs *followers) refusal(name string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.refused[name].err
}

// addStats adds the counts of followers.
func (fs *followers) addStats(s *UnitStats) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	s.Followed, s.FollowFailures = len(fs.all), len(fs.refused)
	for _, f := range fs.all {
		if f.copy != nil {
			s.FollowLag = max(s.FollowLag, f.copy.Lag())
		}
	}
}
