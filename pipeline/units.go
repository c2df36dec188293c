package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
)

// This file is how deliveries share the units of a pipeline's state. A unit is open while
// sessions use it. Its deliveries have one order, whatever partitions their events are of:
// scripts run in it, one at a time, the home commits in it, and then the other sinks.

// errUnitEnded ends the sessions of a unit that another one has given up: what was in flight is
// dropped, and the partitions are opened again.
var errUnitEnded = errors.New("the state was given up")

// units are the open units of a pipeline.
type units struct {
	p          *Pipeline
	notes      atomic.Uint64 // committed
	timers     atomic.Uint64 // that ran
	repeated   atomic.Uint64 // events that were dropped, because another pipeline has written them again
	late       atomic.Uint64 // events before the clock of their unit
	opened     atomic.Int64  // nanoseconds in which copies were brought up to date
	waited     atomic.Int64  // nanoseconds in which scripts waited for room, in memory or on the disk
	waitLogged atomic.Int64  // when such a wait was logged last
	mu         sync.Mutex
	// open has the units that a session uses, also while they open and until they are closed.
	open map[string]*unit
	// partitions has those that the source lists and that are not exhausted, by unit.
	partitions map[string][]string
	// sessions are those that have opened their partition at the sinks, by partition.
	sessions map[string]*session
	// refused has the units that could not be opened when it was last tried.
	refused map[string]*refusal
	// firstWait and longestWait bound the waits before a unit that was refused is tried again.
	firstWait, longestWait time.Duration
}

// A refusal says why a unit cannot be opened before a person has put something right.
type refusal struct {
	err   *state.RefusedError
	wait  time.Duration // the current one
	until time.Time     // its end
}

// A unit is a unit of the state and the turns of its deliveries.
type unit struct {
	*state.Unit
	units  *units
	name   string
	users  int                // sessions; guarded by units.mu
	ready  chan struct{}      // closed when it is open, or cannot be opened
	closed chan struct{}      // closed when it is closed
	ctx    context.Context    // ends when it is given up
	cancel context.CancelFunc // gives it up

	free    chan struct{} // has an item for each delivery that may be in flight besides those that are
	script  chan struct{} // has an item while no script runs
	begun   uint64        // deliveries whose script has run; changed in the turn of the script
	fit     noteFit       // changed in the turn of the script
	home    *sequencer    // turns of commits at the home
	others  *sequencer    // turns of changes of the copy, and of writes to the other sinks
	timers  *alarm        // when the next timer is due
	openErr error         // set before ready is closed
}

func newUnits(p *Pipeline) *units {
	return &units{p: p, open: map[string]*unit{}, sessions: map[string]*session{}, refused: map[string]*refusal{}, firstWait: 10 * time.Second, longestWait: 5 * time.Minute}
}

// acquire returns the open unit of a name. It opens the unit unless a session uses it, which
// fences all other processes. The caller calls release once.
func (us *units) acquire(ctx context.Context, name string) (*unit, error) {
	for {
		us.mu.Lock()
		u := us.open[name]
		if u == nil {
			u = us.newUnit(name)
			us.open[name] = u
			us.mu.Unlock()
			u.openErr = us.openUnit(ctx, u)
			us.noteRefusal(name, u.openErr)
			close(u.ready)
		} else if u.ctx.Err() != nil {
			us.mu.Unlock()
			select {
			case <-u.closed:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		} else {
			u.users++
			us.mu.Unlock()
		}
		select {
		case <-u.ready:
		case <-ctx.Done():
			u.release(ctx.Err())
			return nil, ctx.Err()
		}
		if u.openErr == nil {
			return u, nil
		}
		u.release(u.openErr)
		if ctx.Err() != nil || !errors.Is(u.openErr, context.Canceled) {
			return nil, u.openErr
		}
		// The session that was opening it has ended.
	}
}

// noteRefusal remembers whether a unit could be opened. It logs a refusal once.
func (us *units) noteRefusal(name string, err error) {
	us.mu.Lock()
	defer us.mu.Unlock()
	r := us.refused[name]
	refused, ok := errors.AsType[*state.RefusedError](err)
	switch {
	case !ok && err != nil:
		return // nothing is known
	case !ok:
		if r != nil {
			delete(us.refused, name)
			us.p.status.removeFailure(r)
		}
		return
	case r == nil:
		r = &refusal{wait: us.firstWait / 2}
		us.refused[name] = r
	}
	if r.err == nil || r.err.Error() != refused.Error() {
		us.p.log.Error("a unit of the state cannot be opened; its events wait", "unit", name, "error", refused, "hint", event.HintOf(refused))
	}
	r.err, r.wait = refused, min(2*r.wait, us.longestWait)
	r.until = time.Now().Add(r.wait)
	us.p.status.addFailure(r, err)
}

// isWaiting reports whether a unit was refused, and is not to be tried yet.
func (us *units) isWaiting(name string) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	r := us.refused[name]
	return r != nil && time.Now().Before(r.until)
}

// allRefused reports whether all of these units were refused when they were last tried.
func (us *units) allRefused(names map[string]bool) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	for name := range names {
		if us.refused[name] == nil {
			return false
		}
	}
	return true
}

// isOpen reports whether a session uses a unit.
func (us *units) isOpen(name string) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	u := us.open[name]
	return u != nil && u.ctx.Err() == nil
}

// setPartitions says which partitions of the source the units have.
func (us *units) setPartitions(partitions map[string][]string) {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.partitions = partitions
	for name, u := range us.open {
		select {
		case <-u.ready:
			if u.openErr == nil {
				u.SetPartitions(partitions[name])
			}
		default: // it takes them when it is open
		}
	}
}

func (us *units) newUnit(name string) *unit {
	u := &unit{
		units: us, name: name, users: 1, ready: make(chan struct{}), closed: make(chan struct{}),
		free: make(chan struct{}, deliveriesMax), script: make(chan struct{}, 1), home: newSequencer(), others: newSequencer(), timers: newAlarm(),
	}
	u.script <- struct{}{}
	for range deliveriesMax {
		u.free <- struct{}{}
	}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u
}

// openUnit opens a unit and delivers the outputs that a crash kept from a sink.
func (us *units) openUnit(ctx context.Context, u *unit) error {
	p, began := us.p, time.Now()
	followed := p.followers.take(u.name)
	err := p.sinks[p.config.Home].do(ctx, func() (err error) {
		if followed != nil {
			u.Unit, err = followed.Open(ctx)
		} else {
			u.Unit, err = state.Open(ctx, p.config.State, u.name)
		}
		return err
	})
	if err != nil && followed != nil {
		err = errors.Join(err, followed.Close())
	}
	us.opened.Add(int64(time.Since(began)))
	if err == nil {
		if u.FollowsEvents() {
			u.timers.clock = u.Now
		}
		us.mu.Lock()
		u.SetPartitions(us.partitions[u.name])
		us.mu.Unlock()
		// It asks the home what is not delivered; what it delivered before an error is skipped.
		err = p.sinks[p.config.Home].do(ctx, func() error { return u.deliverOutputs(ctx) })
	}
	if err == nil {
		err = u.setAlarm(ctx)
	}
	if err != nil {
		return fmt.Errorf("open unit %s of state %s: %w", u.name, p.config.State.Name, err)
	}
	p.log.Info("state opened", "state", p.config.State.Name, "unit", u.name, "followed", followed != nil)
	return nil
}

// release ends the use of a unit by a session, which err has ended. Unless err is nil, the
// session may leave a delivery behind that others have read: then the unit is given up.
func (u *unit) release(err error) {
	us := u.units
	us.mu.Lock()
	if err != nil {
		u.cancel()
	}
	u.users--
	last := u.users == 0
	if last {
		u.cancel() // nobody may join while it closes
	}
	us.mu.Unlock()
	if !last {
		return
	}
	if u.Unit != nil {
		if err := u.Unit.Close(); err != nil {
			us.p.log.Warn("closing the state failed", "unit", u.name, "error", err)
		}
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	delete(us.open, u.name)
	close(u.closed)
}

// addSession says that a session has opened its partition at the sinks.
func (us *units) addSession(s *session) {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.sessions[s.partition] = s
}

// removeSession undoes addSession, if it was called. It returns once no unit writes with the session.
func (us *units) removeSession(s *session) {
	us.mu.Lock()
	if us.sessions[s.partition] == s {
		delete(us.sessions, s.partition)
	}
	us.mu.Unlock()
	s.borrowed.Wait()
}

// borrowSession returns the session that has a partition open, or nil. It stays open until the
// caller has called borrowed.Done.
func (us *units) borrowSession(partition string) *session {
	us.mu.Lock()
	defer us.mu.Unlock()
	s := us.sessions[partition]
	if s != nil {
		s.borrowed.Add(1)
	}
	return s
}

// deliverOutputs writes the outputs of committed notes to the sinks that lack them. A session of
// retries may have their partition open; it writes them, since another writer would fence it.
func (u *unit) deliverOutputs(ctx context.Context) (err error) {
	us := u.units
	own := map[string]*session{}
	defer func() {
		for _, s := range own {
			s.close()
		}
	}()
	return u.Undelivered(ctx, func(note *state.Note) error {
		entry, err := outbox.Decode(note.Outputs)
		if err != nil {
			return &event.PermanentError{Err: fmt.Errorf("the outputs in note %d of unit %s: %w", note.Number, u.name, err)}
		}
		partition := entry.Batch.Partition
		if s := us.borrowSession(partition); s != nil {
			defer s.borrowed.Done()
			return s.deliverEntry(ctx, entry)
		}
		s := own[partition]
		if s == nil {
			s = &session{p: us.p, partition: partition, assignment: &assignment{partition: partition, ctx: ctx, reading: ctx}}
			own[partition] = s
			if err := s.openWriters(ctx, true); err != nil {
				return err
			}
		}
		return s.deliverEntry(ctx, entry)
	})
}

// deliverEntry writes outputs of a note to the sinks other than the home. Letters of the run are
// in the file already, since it was written before the note.
func (s *session) deliverEntry(ctx context.Context, entry *outbox.Entry) error {
	if s.isWritten(entry.Batch.Range) {
		return nil
	}
	d := s.newReplay(entry)
	d.stored = false
	for _, name := range entry.Sinks {
		if at := s.p.sinkNamed(name); at >= 0 && d.withoutOutput[at] {
			return &event.PermanentError{
				Err:  fmt.Errorf("sink %s lacks rows of the events %s of partition %s, which were made for other columns than it has now", name, entry.Batch.Range, s.partition),
				Hint: "give the sink the columns that it had, start the pipeline, and change them once it has written what it lacks",
			}
		}
	}
	s.p.config.OnPoint(BeforeReplay)
	s.p.log.Info("writing outputs of committed batches to the sinks that lack them",
		"partition", s.partition, "range", entry.Batch.Range.String(), "script", entry.Script)
	if err := d.writeOthers(ctx); err != nil {
		return err
	}
	s.p.counters.replayed.Add(entry.Batch.Range.Count)
	return nil
}

// waitForScript waits, in a pipeline with a state, until the scripts of all batches of the session
// that were read earlier have run.
func (s *session) waitForScript(ctx context.Context, c *claim) error {
	return s.scripts.waitForTurn(ctx, c.number)
}

// endScript says that the script has run on the whole batch.
func (s *session) endScript() { s.scripts.endTurn() }

// setAlarm sets when the first timer of the unit is due.
func (u *unit) setAlarm(ctx context.Context) error {
	r, err := u.begin(ctx)
	if err != nil {
		return err
	}
	at, found, err := r.state.NextTimer(ctx)
	u.timers.set(at, found)
	return errors.Join(err, r.discard())
}

// commitNote is commit for a delivery with a state: the home commits rows, range and note, and
// then the others write what the note has for them.
func (d *delivery) commitNote(ctx context.Context) error {
	u := d.run.unit
	if err := d.replaceDeadLetters(ctx); err != nil {
		return err
	}
	d.p.config.OnPoint(AfterDeadLetters)
	data, err := d.encodeNote()
	if err != nil {
		return err
	}
	if err := d.waitForTurn(ctx, u.home, d.run.number); err != nil {
		return err
	}
	note, err := d.writeHome(ctx, data)
	if errors.Is(err, sink.ErrFenced) {
		d.withdraw()
	}
	if err != nil {
		return fmt.Errorf("write to sink %s: %w", d.p.config.Sinks[d.p.config.Home].Name, err)
	}
	u.Committed(note)
	u.units.notes.Add(1)
	u.home.endTurn()
	if err := d.waitForTurn(ctx, u.others, d.run.number); err != nil {
		return err
	}
	if err := u.Apply(d.run.state, note); err != nil {
		return err
	}
	u.free <- struct{}{}
	d.p.config.OnPoint(AfterNote)
	if err := d.writeOthers(ctx); err != nil {
		return err
	}
	u.Delivered(note.Number)
	u.others.endTurn()
	d.reportResult()
	return nil
}

// writeHome writes rows, range and note to the home in one transaction. Rows that it rejects
// become dead letters, and keep what their events changed in the state. data is that of the note.
func (d *delivery) writeHome(ctx context.Context, data []byte) (note *sink.Note, err error) {
	home := d.p.config.Home
	for {
		note = d.run.unit.Next(data)
		d.p.config.OnPoint(BeforeWrite)
		err := d.tryWrite(ctx, home, func() error {
			return d.writers[home].(sink.NoteWriter).WriteNote(ctx, &d.result.Outputs[home], d.run.unit.Home(), note)
		})
		rejected, ok := errors.AsType[*sink.RowErrors](err)
		if !ok {
			return note, err
		}
		if err := d.rejectRows(rejected, home); err != nil {
			return nil, err
		}
		if err := d.replaceDeadLetters(ctx); err != nil {
			return nil, err
		}
		if data, err = d.encodeNote(); err != nil {
			return nil, err
		}
	}
}

// encodeNote returns the data of the note, with the outputs for the sinks that are not the home.
func (d *delivery) encodeNote() ([]byte, error) {
	content, err := d.noteContent()
	if err != nil {
		return nil, err
	}
	return d.run.unit.Encode(d.run.state, content)
}

// noteContent returns what the note has besides the changes of the state.
func (d *delivery) noteContent() (content state.Note, err error) {
	content = state.Note{Script: d.script, Partition: d.partition, Range: event.Range{First: d.batch.Range.First, Count: d.batch.Range.Count}}
	if len(d.p.config.Sinks) > 1 {
		entry := d.outboxEntry(func(i int) bool { return i != d.p.config.Home })
		if content.Outputs, err = entry.Encode(); err != nil {
			return content, fmt.Errorf("encode outputs: %w", err)
		}
	}
	return content, nil
}

// writeOthers writes the outputs for the sinks that are not the home.
func (d *delivery) writeOthers(ctx context.Context) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	for _, i := range d.p.writeOrder {
		if i == d.p.config.Home || d.lacksOutput(i) {
			continue
		}
		if err := d.writeSink(ctx, i); err != nil {
			return fmt.Errorf("write to sink %s: %w", d.p.config.Sinks[i].Name, err)
		}
	}
	return nil
}

// timersPrefix begins the names of the partitions of timers: one for each unit.
const timersPrefix = "timers@"

// TimersOf returns the partition of a unit's timers.
func TimersOf(unit string) string { return timersPrefix + unit }

// IsTimers reports whether a partition is that of the timers of a unit.
func IsTimers(partition string) (unit string, yes bool) {
	return strings.CutPrefix(partition, timersPrefix)
}

// An alarm is the time at which the first timer of a unit is due. It is safe for concurrent use.
type alarm struct {
	// clock shows the time where it is not that of the machine; else nil. It is set before the first
	// wait.
	clock   func() time.Time
	mu      sync.Mutex
	at      time.Time
	isSet   bool
	changed chan struct{} // closed at the next change
}

func newAlarm() *alarm { return &alarm{changed: make(chan struct{})} }

// set sets the time; found is false without one.
func (a *alarm) set(at time.Time, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isSet == found && a.at.Equal(at) {
		return
	}
	a.at, a.isSet = at, found
	close(a.changed)
	a.changed = make(chan struct{})
}

// clockInterval is how often a clock that follows events is looked at while none come: a partition
// may have become idle.
const clockInterval = 250 * time.Millisecond

// advance says that the clock may show another time.
func (a *alarm) advance() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait returns once the time has come, or with the error of ctx.
func (a *alarm) wait(ctx context.Context) error {
	for {
		a.mu.Lock()
		at, found, changed := a.at, a.isSet, a.changed
		a.mu.Unlock()
		var due <-chan time.Time
		if found {
			left := time.Until(at)
			if a.clock != nil {
				if left = 0; at.After(a.clock()) {
					left = clockInterval
				}
			}
			if left <= 0 {
				return nil
			}
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ViewState calls f with the committed state of a unit, as far as this machine has it.
func (p *Pipeline) ViewState(ctx context.Context, name string, f func(*nodedb.Tx) error) error {
	if u, done := p.units.peek(name); u != nil {
		defer done()
		return u.View(ctx, f)
	}
	if followed := p.followers.peek(name); followed != nil {
		return followed.View(ctx, f)
	}
	return p.config.State.View(ctx, name, f)
}

// OwnedUnits returns the units of the state that this worker has open.
func (p *Pipeline) OwnedUnits() (names []string) {
	p.units.mu.Lock()
	defer p.units.mu.Unlock()
	for name, u := range p.units.open {
		if u.ctx.Err() == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ViewOwned is ViewState for a unit that this worker has. It reports whether it has it.
func (p *Pipeline) ViewOwned(ctx context.Context, name string, f func(*nodedb.Tx) error) (owned bool, err error) {
	u, done := p.units.peek(name)
	if u == nil {
		return false, nil
	}
	defer done()
	return true, u.View(ctx, f)
}

// StateStatus describes the copy that this machine has of a unit; nil if it has none.
func (p *Pipeline) StateStatus(name string) (*state.CopyStatus, error) {
	if u, done := p.units.peek(name); u != nil {
		defer done()
		return u.Status()
	}
	var status *state.CopyStatus
	var err error
	if followed := p.followers.peek(name); followed != nil {
		status, err = followed.Status()
	} else {
		status, err = p.config.State.CopyStatus(name)
	}
	if refused := p.followers.refusal(name); refused != nil && status != nil {
		status.Refused = refused.Error()
	}
	return status, err
}

// ArchiveStatus says how far the archive of a unit is; nil if there is none, or if this process does not
// own the unit.
func (p *Pipeline) ArchiveStatus(name string) *state.ArchiveStatus {
	u, done := p.units.peek(name)
	if u == nil {
		return nil
	}
	defer done()
	return u.ArchiveStatus()
}

// SnapshotState makes a snapshot of a unit in the archive. progress may be nil.
func (p *Pipeline) SnapshotState(ctx context.Context, name string, progress func(state.Progress)) (state.SnapshotResult, error) {
	u, done := p.units.peek(name)
	if u == nil {
		return state.SnapshotResult{}, event.WithHint(fmt.Errorf("unit %s of state %s is not open on this worker", name, p.config.State.Name),
			"ask the worker that has it, or wait until this one has opened it")
	}
	defer done()
	return u.Snapshot(ctx, progress)
}

func (us *units) stats() UnitStats {
	us.mu.Lock()
	names := slices.Collect(maps.Keys(us.open))
	us.mu.Unlock()
	all := UnitStats{Notes: us.notes.Load(), Timers: us.timers.Load(), WaitTime: time.Duration(us.waited.Load()), Late: us.late.Load(), Repeated: us.repeated.Load(), Restore: time.Duration(us.opened.Load())}
	us.p.followers.addStats(&all)
	for _, name := range names {
		u, done := us.peek(name)
		if u == nil {
			continue
		}
		if status, err := u.Status(); err == nil {
			all.Open++
			all.Nodes += status.Nodes
			all.WaitingBytes += status.WaitingBytes
			all.InFlight += status.InFlight
		}
		if a := u.ArchiveStatus(); a != nil {
			all.ArchiveNotes += a.WaitingNotes
			all.ArchiveBytes += a.WaitingBytes
		}
		done()
	}
	return all
}

// peek returns a unit if it is open, and the function that ends its use.
func (us *units) peek(name string) (u *unit, done func()) {
	us.mu.Lock()
	defer us.mu.Unlock()
	u = us.open[name]
	if u == nil || u.ctx.Err() != nil {
		return nil, nil
	}
	select {
	case <-u.ready:
	default:
		return nil, nil
	}
	if u.openErr != nil {
		return nil, nil
	}
	u.users++
	return u, func() { u.release(nil) }
}
