package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
)

// A Scratch is a state for trials of a script: a unit in a temporary folder, which begins empty and
// ends with the Scratch. Each run of the script is one delivery, which is committed at once. Runs
// wait for each other, as those of one unit do.
//
// A Scratch is safe for concurrent use.
type Scratch struct {
	now    func() time.Time
	events *EventTime // nil if time is that of now

	mu     sync.Mutex // held by a run
	folder string     // "" before the first use
	unit   *nodedb.Unit
	last   uint64      // number of the last delivery
	due    []lua.Timer // of the last batch of timers
	first  uint64      // its first position

	eventClock *eventClock
	shown      time.Time // the latest time of a clock that follows events
}

// NewScratch returns an empty state whose clock is now, or follows the times of events.
func NewScratch(now func() time.Time, events *EventTime) *Scratch {
	return &Scratch{now: now, events: events}
}

// FollowsEvents reports whether the clock follows the times of events.
func (s *Scratch) FollowsEvents() bool { return s.events != nil }

// Clock returns the time of the next run.
func (s *Scratch) Clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock()
}

// Wrap returns a script whose runs have the state. Several scripts may share it.
func (s *Scratch) Wrap(of script.Script) script.Script { return &scratchScript{of, s} }

type scratchScript struct {
	script.Script
	scratch *Scratch
}

// Run implements script.Script.
func (r *scratchScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	return r.scratch.run(ctx, r.Script, in, res)
}

// run runs a script as a pipeline does; see scriptRun.runIn there.
func (s *Scratch) run(ctx context.Context, of script.Script, in *event.Batch, res *event.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.preview(in); err != nil {
		return err
	}
	d, err := s.begin()
	if err != nil {
		return err
	}
	in.State, in.Time = d, d.Clock
	err = of.Run(ctx, in, res)
	in.State, in.Time = nil, time.Time{}
	if _, isLimit := errors.AsType[*script.LimitError](err); res.Ran == 0 || err != nil && !isLimit {
		return errors.Join(err, d.Discard())
	}
	if in.Timers {
		for _, dead := range res.Dead { // what failed was undone, with the removal of its timer
			if err := d.RemoveTimer(s.due[dead.Position-s.first]); err != nil {
				return errors.Join(err, d.Discard())
			}
		}
	}
	if s.eventClock != nil && !in.Timers {
		ran := in.Head(res.Ran)
		if _, failed := s.eventClock.observe(&ran, d.Clock, s.now(), endOfTime); failed != nil {
			return errors.Join(failed, d.Discard())
		}
	}
	return errors.Join(err, s.commit(d))
}

// WithReads returns a script whose runs read the states of other pipelines: as they are when a run
// begins, in this order.
func WithReads(of script.Script, states []*Scratch) script.Script {
	if len(states) == 0 {
		return of
	}
	return &readingScript{of, states}
}

type readingScript struct {
	script.Script
	states []*Scratch
}

// Run implements script.Script.
func (r *readingScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	defer func() { in.Reads = nil }()
	for _, s := range r.states {
		reader, err := s.openReader()
		if err != nil {
			return err
		}
		defer reader.Close()
		in.Reads = append(in.Reads, reader)
	}
	return r.Script.Run(ctx, in, res)
}

func (s *Scratch) openReader() (*nodedb.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return nil, err
	}
	return s.unit.OpenReader()
}

// preview tells a clock that follows events which ones are about to run.
func (s *Scratch) preview(in *event.Batch) error {
	if s.events == nil || in.Timers {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	s.eventClock.setPartitions([]string{in.Partition}, s.now())
	return s.eventClock.preview(in, s.now(), endOfTime)
}

// endOfTime is the latest time of a timer.
var endOfTime = time.UnixMicro(math.MaxInt64)

// open opens the unit at its first use.
func (s *Scratch) open() (err error) {
	if s.unit != nil {
		return nil
	}
	if s.folder, err = os.MkdirTemp("", "perigee-state-"); err != nil {
		return fmt.Errorf("create a folder for the state of a trial: %w", err)
	}
	if s.events != nil {
		s.eventClock = newEventClock(*s.events)
	}
	s.unit, err = nodedb.OpenUnit(s.folder, nodedb.UnitOptions{NoSync: true, FlushAge: time.Hour})
	return err
}

// CopyFrom makes the state begin with what the copy of a unit on this machine has. The engine must be
// stopped. It is called before the first run.
func (s *Scratch) CopyFrom(ctx context.Context, c *Config, unit string) (err error) {
	if err := c.View(ctx, unit, func(*nodedb.Tx) error { return nil }); err != nil {
		return err // the copy is not complete
	}
	store, err := nodedb.Open(c.folderOf(unit), nodedb.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder, err = os.MkdirTemp("", "perigee-state-"); err != nil {
		return fmt.Errorf("create a folder for the copy of a state: %w", err)
	}
	folder := filepath.Join(s.folder, "unit")
	if err := store.Backup(folder); err != nil {
		return err
	}
	if s.events != nil {
		s.eventClock = newEventClock(*s.events)
	}
	if s.unit, err = nodedb.OpenUnit(folder, nodedb.UnitOptions{NoSync: true, FlushAge: time.Hour}); err != nil {
		return err
	}
	stats, err := s.unit.Stats()
	s.last, s.shown = stats.Last, stats.Clock
	return err
}

func (s *Scratch) begin() (*Delivery, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	delta, err := s.unit.Begin(s.clock())
	if err != nil {
		return nil, err
	}
	return &Delivery{delta, delta.Clock()}, nil
}

func (s *Scratch) clock() time.Time {
	if s.events == nil {
		return s.now().Truncate(time.Millisecond)
	}
	if s.eventClock != nil {
		s.shown = latest(s.shown, s.eventClock.at(s.now(), !s.shown.IsZero()))
	}
	return s.shown
}

func (s *Scratch) commit(d *Delivery) error {
	if err := d.Freeze(); err != nil {
		return err
	}
	if err := s.unit.Commit(d.Delta, s.last+1, 0); err != nil {
		return err
	}
	s.last++
	return nil
}

// View calls f with what the runs so far have left.
func (s *Scratch) View(ctx context.Context, f func(*nodedb.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view(ctx, f)
}

func (s *Scratch) view(ctx context.Context, f func(*nodedb.Tx) error) error {
	if err := s.open(); err != nil {
		return err
	}
	return s.unit.View(ctx, f)
}

// NextTimer returns the clock of the earliest delivery for which the first timer is due; false if
// there is none.
func (s *Scratch) NextTimer(ctx context.Context) (at time.Time, found bool, err error) {
	err = s.View(ctx, func(tx *nodedb.Tx) error {
		timers, _, err := lua.DueTimers(ctx, tx, endOfTime, 1)
		if len(timers) > 0 {
			at, found = deliveryAt(timers[0].Due), true
		}
		return err
	})
	return at, found, err
}

// deliveryAt returns the first whole millisecond at which a timer is due. Neighbours of a float64
// may stand for the same decimal, so that the nearest one may be before it.
func deliveryAt(due float64) time.Time {
	at := time.UnixMilli(int64(math.Round(due * 1e3)))
	if float64(at.UnixMicro())/1e6 < due {
		return at.Add(time.Millisecond)
	}
	return at
}

// ReadTimers appends at most limit timers that are due by the clock to an empty batch. It is run
// before any other batch of timers is read. Timers that a limit keeps from running stay due.
func (s *Scratch) ReadTimers(ctx context.Context, b *event.Batch, limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.view(ctx, func(tx *nodedb.Tx) (err error) {
		s.due, _, err = lua.DueTimers(ctx, tx, s.clock(), limit)
		return err
	})
	if err != nil {
		return err
	}
	s.first = b.Range.First
	return AppendTimers(b, s.due)
}

// Clear empties the state, and lets its clock begin at any time.
func (s *Scratch) Clear() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove()
}

// Close removes the state. No script that Wrap has returned may run afterwards.
func (s *Scratch) Close() error { return s.Clear() }

func (s *Scratch) remove() error {
	if s.folder == "" {
		return nil
	}
	var closed error
	if s.unit != nil {
		closed = s.unit.Close()
	}
	removed := os.RemoveAll(s.folder)
	s.folder, s.unit, s.last, s.due = "", nil, 0, nil
	s.eventClock, s.shown = nil, time.Time{}
	return errors.Join(closed, removed)
}
