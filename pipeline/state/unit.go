// Package state keeps the state of a pipeline's script: trees of nodes that the script reads
// and changes, and that are as exact as its rows.
//
// A Unit is one tree. A delta is the changes of a delivery in it. The home, one of the
// pipeline's sinks, commits a note with the delta in the transaction of rows and range, so
// that after a crash the state is that of exactly the events that the home has. The copy, a
// folder of the node database on this machine, takes committed deltas in memory at once and
// on disk some seconds later; when a unit is opened, the notes that its copy lacks are read
// from the home and applied. Notes leave the home when every sink has their outputs and the
// copy has them on disk.
//
// With an archive, an archiver also writes the notes and snapshots of the copy to a folder or a bucket,
// and notes stay at the home until it has. A machine without a copy makes one from them.
//
// Notes are numbered, and each has the checksum of the one before. A home that was set back,
// a copy of another history, and notes that are missing or damaged are refused with an error
// that names the numbers; nothing is guessed.
//
// A Unit is safe for concurrent use, but deltas are begun, frozen and committed in order: see
// its methods.
package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/sink"
)

// Config describes the state of a pipeline.
type Config struct {
	Name string
	// Version is that of the layout of the nodes; 0 means 1. Units of another version are refused
	// until they are migrated.
	Version int
	// Shared says that all partitions have one unit. Otherwise each has its own, whatever
	// its generation.
	Shared bool
	// EventTime says that time is that of the events; nil means that it is that of the machine.
	EventTime *EventTime
	// Home keeps the notes.
	Home sink.UnitStore
	// HomeName is the home's sink in messages.
	HomeName string
	// Folder has a folder for each unit.
	Folder string
	// FlushAge is how long a change may wait for the disk; 0 means the default of nodedb.
	FlushAge time.Duration
	// Budget bounds the memory of the units of an engine; nil means that nothing does.
	Budget *Budget
	// Archive keeps notes and snapshots; nil for none.
	Archive archive.Place
	// Keep is how far back in time the archive reaches; 0: everything is kept.
	Keep time.Duration
	// ArchiveAge is how long a note waits for a segment, and SnapshotBytes the least size of
	// segments that a snapshot replaces; 0 means the defaults.
	ArchiveAge    time.Duration
	SnapshotBytes int64
	// Standby is how many workers beside the owner keep a copy of each unit.
	Standby int
	// KeepNotes is how long a note stays in the home at least, for followers that were away.
	KeepNotes time.Duration
	Log       *slog.Logger
	// OnStep is called at each Step, for tests that stop the process there. It may be nil.
	OnStep func(Step)
}

// A Step is one of the work in the background that a unit does.
type Step string

// The steps.
const (
	BeforeTrim     Step = "before-trim"     // the home is about to remove notes
	AfterTrim      Step = "after-trim"      // it has removed them
	BeforeSegment  Step = "before-segment"  // notes are about to be archived
	AfterSegment   Step = "after-segment"   // they are in the archive
	InSnapshot     Step = "in-snapshot"     // the archive has a chunk of a snapshot
	BeforeSnapshot Step = "before-snapshot" // it has all chunks
	AfterSnapshot  Step = "after-snapshot"  // it has the snapshot
	BeforeRemoval  Step = "before-removal"  // the archive is about to remove what is too old
	InRestore      Step = "in-restore"      // a chunk or a segment was restored
	BeforeRename   Step = "before-rename"   // all was restored
)

// InMove is the step at which a note of a Move was committed. A pipeline makes none.
const InMove Step = "in-move"

// Steps returns all steps of a unit that a pipeline uses.
func Steps() []Step {
	return []Step{
		BeforeTrim, AfterTrim, BeforeSegment, AfterSegment, InSnapshot, BeforeSnapshot, AfterSnapshot, BeforeRemoval, InRestore, BeforeRename,
	}
}

func (c *Config) callOnStep(at Step) {
	if c.OnStep != nil {
		c.OnStep(at)
	}
}

// sharedUnit names the only unit of a state that all partitions share.
const sharedUnit = "all"

// UnitOf returns the name of the unit of a partition that the source knows by this name.
func (c *Config) UnitOf(partition string) string {
	if c.Shared {
		return sharedUnit
	}
	return partition
}

// homeName is the name of a unit at the home, which may keep several states and versions.
func (c *Config) homeName(unit string) string { return c.homePrefix() + unit }

func (c *Config) homePrefix() string {
	if v := c.version(); v > 1 {
		return fmt.Sprintf("%s@%d/", c.Name, v)
	}
	return c.Name + "/"
}

// A Unit is an open unit, which this process owns.
type Unit struct {
	home   sink.Unit
	events *eventClock // nil if time is that of the machine
	log    *slog.Logger

	mu        sync.Mutex // guards the fields below, and those of the replica that notes change
	replica              // its last note is the last one that the home has committed
	trimmed   uint64     // notes before it were removed from the home
	kept      recentNotes
	opened    uint64 // number of the last note when the unit was opened
	archived  uint64 // the archive has the notes up to it; 0 if that is not known yet
	committed uint64 // bytes of notes since the unit was opened

	stopTrimming func()
	archiver     *archiver // nil without an archive
}

// A RefusedError says why a unit cannot be opened before a person has put something right. It is
// permanent, and does not concern other units.
type RefusedError struct {
	Unit string
	err  *event.PermanentError
}

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }

// Open takes over a unit and brings its copy up to date. A *RefusedError says why the copy and the
// home do not fit, or that a Move of the unit was interrupted. Any other error may be transient.
func Open(ctx context.Context, c *Config, name string) (*Unit, error) {
	u := makeUnit(replica{config: c, name: name})
	if err := u.open(ctx); err != nil {
		return nil, errors.Join(err, u.close())
	}
	u.start()
	return u, nil
}

func makeUnit(r replica) *Unit {
	u := &Unit{replica: r, log: r.config.Log.With("state", r.config.Name, "unit", r.name), kept: recentNotes{keep: r.config.KeepNotes}}
	if r.config.EventTime != nil {
		u.events = newEventClock(*r.config.EventTime)
	}
	return u
}

// start begins the work in the background.
func (u *Unit) start() {
	u.opened = u.last
	u.startArchiving()
	u.startTrimming()
}

func (u *Unit) open(ctx context.Context) error {
	if err := u.takeOver(ctx); err != nil {
		return err
	}
	return u.checkMoved(ctx)
}

// takeOver is open that also opens a unit whose move was interrupted.
func (u *Unit) takeOver(ctx context.Context) (err error) {
	c := u.config
	if err := u.checkCopy(ctx); err != nil {
		return err
	}
	if u.home, err = c.Home.OpenUnit(ctx, c.homeName(u.name)); err != nil {
		return err
	}
	status, err := u.home.Status(ctx)
	if err != nil {
		return err
	}
	if u.copy == nil {
		if err := u.restoreOutdated(ctx, status); err != nil {
			return err
		}
		if err := u.useCopy(c.folderOf(u.name)); err != nil {
			return err
		}
	}
	if err := u.catchUp(ctx, status); err != nil {
		return err
	}
	return u.readDelivered()
}

// checkCopy refuses a unit that has no copy here and needs one, before it is taken over from the
// process that has its copy.
func (u *Unit) checkCopy(ctx context.Context) error {
	if u.copy != nil || u.config.HasCopy(u.name) || u.config.CanRestore() {
		return nil
	}
	units, err := u.config.Units(ctx)
	if err != nil {
		return err
	}
	if status, known := units[u.name]; known && status.First > 1 {
		return u.refuse(fmt.Errorf("unit %s of state %s has no copy in %s, and sink %s keeps only the changes from note %d on",
			u.name, u.config.Name, u.config.folderOf(u.name), u.config.HomeName, status.First),
			"its last owner, "+status.Owner+", has a copy: run the pipeline there, or bring the folder of the state here while neither runs")
	}
	return nil
}

// catchUp applies the notes that the copy lacks.
func (u *Unit) catchUp(ctx context.Context, status sink.UnitStatus) error {
	had := u.last
	if err := u.checkNotSetBack(status.Last); err != nil {
		return err
	}
	if had+1 < status.First {
		return u.refuse(fmt.Errorf("the copy of unit %s in %s has changes up to note %d, and sink %s notes from %d on",
			u.name, u.config.folderOf(u.name), had, u.config.HomeName, status.First),
			"another machine has the copy that continues: run the pipeline there, or bring the folder of the state here while neither runs")
	}
	err := u.home.Notes(ctx, max(had, status.First, 1), func(stored *sink.Note) error {
		if stored.Number == had {
			return u.compare(stored)
		}
		if err := u.WaitForRoom(ctx, u.reportWait); err != nil {
			return err
		}
		return u.take(stored)
	})
	if err != nil {
		return err
	}
	if u.last != status.Last {
		return u.refuse(fmt.Errorf("sink %s has note %d of unit %s, and note %d is missing", u.config.HomeName, status.Last, u.name, u.last+1), "restore the database from a backup that has it")
	}
	if status.Last > had {
		u.log.Info("the copy of the state is up to date", "notes applied", status.Last-had)
	}
	u.trimmed = status.First
	return nil
}

func (u *Unit) reportWait(reason error) {
	u.log.Warn("completing the copy of the state waits", "reason", reason)
}

// Undelivered passes the notes that have outputs which a sink may lack to visit, in order.
func (u *Unit) Undelivered(ctx context.Context, visit func(*Note) error) error {
	u.mu.Lock()
	from := u.delivered + 1
	u.mu.Unlock()
	return u.home.Notes(ctx, max(from, 1), func(stored *sink.Note) error {
		note, err := decodeNote(stored)
		if err == nil && len(note.Outputs) > 0 {
			err = visit(note)
		}
		if err == nil {
			u.Delivered(note.Number)
		}
		return err
	})
}

// Delivered says that every sink has the outputs of the notes up to a number.
func (u *Unit) Delivered(number uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delivered = max(u.delivered, number)
}

// A Delivery is the state of one run of the script. It implements event.State.
type Delivery struct {
	*nodedb.Delta
	Clock time.Time
}

// Begin returns the state for the next run of the script. It contains all deliveries that were
// frozen before. One run goes on at a time.
func (u *Unit) Begin() (*Delivery, error) {
	delta, err := u.copy.Begin(u.Now())
	if err != nil {
		return nil, fmt.Errorf("unit %s: %w", u.name, err)
	}
	return &Delivery{delta, delta.Clock()}, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Encode returns the data of a note for a delivery that is frozen. content has what a note says of
// it besides its changes and its place in the sequence.
func (u *Unit) Encode(d *Delivery, content Note) (data []byte, err error) {
	if content.Changes, err = d.AppendTo(nil); err != nil {
		return nil, fmt.Errorf("encode the changes of unit %s: %w", u.name, err)
	}
	u.mu.Lock()
	content.Delivered = u.delivered
	u.mu.Unlock()
	content.Clock = d.Clock
	return content.encode()
}

// Next returns encoded data as the note that follows the last one that the home has committed.
func (u *Unit) Next(data []byte) *sink.Note {
	u.mu.Lock()
	defer u.mu.Unlock()
	return link(data, u.last+1, u.sum)
}

// Committed says that the home has committed a note.
func (u *Unit) Committed(note *sink.Note) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last, u.sum = note.Number, note.Sum
	u.committed += uint64(len(note.Data))
}

// Apply makes a delivery part of the committed state, in the order of the notes.
func (u *Unit) Apply(d *Delivery, note *sink.Note) error {
	if err := u.copy.Commit(d.Delta, note.Number, note.Sum); err != nil {
		return fmt.Errorf("apply note %d to the copy of unit %s: %w", note.Number, u.name, err)
	}
	return nil
}

// trimInterval is how often notes are removed from the home.
const trimInterval = time.Second

// startTrimming removes notes from the home while the unit is open.
func (u *Unit) startTrimming() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-time.After(trimInterval):
			case <-ctx.Done():
				return
			}
			if err := u.trim(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, sink.ErrFenced) {
				u.log.Debug("removing notes that nothing needs any more", "error", err)
			}
		}
	})
	u.stopTrimming = func() {
		cancel()
		running.Wait()
	}
}

// trim removes the notes from the home that every sink, the copy's disk and the archive are past. It
// keeps the last one that the copy has on disk, by which the copy is compared with the home.
func (u *Unit) trim(ctx context.Context) error {
	durable, err := u.copy.Durable()
	if err != nil {
		return err
	}
	u.mu.Lock()
	before := min(durable, u.delivered+1, u.kept.old(time.Now(), u.last))
	if u.archiver != nil {
		before = min(before, u.archived+1)
	}
	due := before > u.trimmed
	u.mu.Unlock()
	if !due {
		return nil
	}
	u.config.callOnStep(BeforeTrim)
	if err := u.home.Trim(ctx, before); err != nil {
		return err
	}
	u.config.callOnStep(AfterTrim)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trimmed = before
	return nil
}

// recentNotes know which notes are so old that the home may remove them.
type recentNotes struct {
	keep    time.Duration
	samples []noteSample // the oldest first
}

// A noteSample says which note was the last one at a time.
type noteSample struct {
	at   time.Time
	last uint64
}

// old returns the number of the last note that is old enough; 0 if none is known to be. last is
// that of the last note now.
func (r *recentNotes) old(now time.Time, last uint64) uint64 {
	if r.keep == 0 {
		return last
	}
	r.samples = append(r.samples, noteSample{now, last})
	for len(r.samples) > 1 && now.Sub(r.samples[1].at) >= r.keep {
		r.samples = r.samples[1:]
	}
	if now.Sub(r.samples[0].at) < r.keep {
		return 0
	}
	return r.samples[0].last
}

// Close writes the copy to disk and gives up the unit. Deliveries that are not committed are
// dropped.
func (u *Unit) Close() error {
	noted := u.writeDelivered()
	u.stopTrimming()
	u.stopTrimming = nil
	u.copy.Drop()
	u.closeArchiver()
	return errors.Join(noted, u.syncAndTrim(), u.close())
}

// syncAndTrim leaves as few notes in the home as the next owner needs.
func (u *Unit) syncAndTrim() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := u.copy.Sync(ctx)
	if err == nil {
		err = u.trim(ctx)
	}
	if errors.Is(err, sink.ErrFenced) {
		return nil
	}
	return err
}

// closeTimeout bounds how long Close waits for the home. The notes that stay are removed later.
const closeTimeout = 5 * time.Second

// deliveredFile returns the file that has the number of the last note whose outputs every sink
// had when the unit was closed. Without it, sinks that deliver at least once get the outputs of
// the last notes again.
func (u *Unit) deliveredFile() string { return u.config.folderOf(u.name) + "~delivered" }

func (u *Unit) writeDelivered() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	text := fmt.Sprintf("%d %d %x\n", u.delivered, u.last, u.sum)
	if err := durable.WriteFile(u.deliveredFile(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("note what the sinks of unit %s have: %w", u.name, err)
	}
	return nil
}

// readDelivered takes the number from the file if no note was committed since, also not in another
// history, which a home that was set back has.
func (u *Unit) readDelivered() error {
	text, err := durable.ReadFile(u.deliveredFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what the sinks of unit %s have: %w", u.name, err)
	}
	var delivered, last, sum uint64
	n, err := fmt.Sscanf(string(text), "%d %d %x\n", &delivered, &last, &sum)
	if err == nil && n == 3 && last == u.last && sum == u.sum && delivered <= last {
		u.Delivered(delivered)
	}
	return nil
}

func (u *Unit) close() error {
	if u.stopTrimming != nil {
		u.stopTrimming()
	}
	var errs []error
	if u.copy != nil {
		u.copy.Drop()
		errs = append(errs, u.closeCopy())
	}
	if u.home != nil {
		errs = append(errs, u.home.Close())
	}
	return errors.Join(errs...)
}

// Home returns the unit at the home, for sink.NoteWriter.
func (u *Unit) Home() sink.Unit { return u.home }

// LastNotes returns the number of the last note of each unit of the state, by their names.
func (c *Config) LastNotes(ctx context.Context) (map[string]uint64, error) {
	all, err := c.Home.LastNotes(ctx)
	last := map[string]uint64{}
	for name, number := range all {
		if unit, ok := strings.CutPrefix(name, c.homePrefix()); ok {
			last[unit] = number
		}
	}
	return last, err
}

// Units returns what the home has of the units of the state, by their names.
func (c *Config) Units(ctx context.Context) (map[string]sink.UnitStatus, error) {
	all, err := c.Home.Units(ctx)
	units := map[string]sink.UnitStatus{}
	for name, status := range all {
		if unit, ok := strings.CutPrefix(name, c.homePrefix()); ok {
			units[unit] = status
		}
	}
	return units, err
}
