package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/sink"
)

// A base is where a restore begins, and what follows from the archive.
type base struct {
	snapshot archive.SnapshotName
	manifest *archive.Manifest // nil: it begins with nothing
	parts    []archive.Part
}

// A target is what a restore leads to: the note before the first that the home keeps, or a later one of
// the home.
type target struct {
	end  archive.Point // of the chain in the archive
	last uint64        // of the notes that follow at the home; end.Number: there are none
	// sumAtHome returns the checksum of one of these.
	sumAtHome func(context.Context, uint64) (uint64, error)
}

// has reports whether a note is on the way to the target. If it is on the chain, the parts follow it.
func (t *target) has(ctx context.Context, chain *archive.Chain, p archive.Point) (parts []archive.Part, found bool, err error) {
	if p.Number <= t.end.Number {
		return chain.Parts(ctx, p)
	}
	if p.Number > t.last {
		return nil, false, nil
	}
	sum, err := t.sumAtHome(ctx, p.Number)
	return nil, sum == p.Sum, err
}

// findBase returns the newest base that leads to a target; nil if there is none. leaveOut, which may be
// nil, leaves out snapshots.
func findBase(ctx context.Context, store *archive.Unit, h *archive.History, t *target, leaveOut func(archive.SnapshotName) bool) (*base, error) {
	chain, err := h.ChainTo(ctx, t.end)
	if err != nil {
		return nil, err
	}
	for _, s := range chain.Bases(t.last) {
		if leaveOut != nil && leaveOut(s) {
			continue
		}
		parts, found, err := t.has(ctx, chain, s.Applied)
		if err == nil && found { // it may have parts of later notes: they must be of this history as well
			_, found, err = t.has(ctx, chain, s.Begun)
		}
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		m, err := store.ReadSnapshot(ctx, s)
		if archive.IsUnreadable(err) {
			continue
		}
		return &base{s, m, parts}, err
	}
	parts, found, err := chain.Parts(ctx, archive.Point{})
	if err != nil || !found {
		return nil, err
	}
	return &base{parts: parts}, nil
}

// restoreOutdated makes a copy of the unit from the archive if this machine has none, or one that is
// older than the notes that the home keeps.
func (u *Unit) restoreOutdated(ctx context.Context, status sink.UnitStatus) error {
	if u.config.Archive == nil || status.First <= 1 || status.Last == 0 {
		return nil
	}
	if err := u.createFolder(); err != nil {
		return err
	}
	folder := u.config.folderOf(u.name)
	r := u.newRestore(folder)
	if u.config.HasCopy(u.name) {
		unit, err := u.openCopy(folder)
		if err != nil {
			return err
		}
		applied, begun, mark := unit.Positions()
		if err := unit.Close(); err != nil || applied+1 >= status.First {
			return err
		}
		r.outdated = &archive.Point{Number: applied, Sum: mark}
		r.complete = begun == applied
	}
	if err := r.run(ctx, status); err != nil {
		return err
	}
	aside := folder + "~outdated"
	if r.outdated != nil && !r.sameHistory {
		aside = freeName(folder + time.Now().UTC().Format(asideLayout))
		u.log.Warn("the copy of the state on this machine had another history, and is kept", "folder", aside)
	}
	err := r.replace(aside)
	if err == nil && r.sameHistory {
		err = os.RemoveAll(aside)
	}
	return err
}

// asideLayout ends the name of a folder that was replaced.
const asideLayout = "~20060102T150405"

// A restore makes a copy of a unit beside the folder of the copy, and continues the work of a process
// that was killed.
type restore struct {
	u        *Unit
	store    *archive.Unit
	folder   string // of the copy
	building string
	progress func(Progress)
	reported time.Time

	outdated    *archive.Point // the last note in the copy that will be replaced; nil: there is none
	complete    bool           // it has no part of later notes
	sameHistory bool           // it is on the chain to the note that is restored
}

func (u *Unit) newRestore(folder string) *restore {
	return &restore{u: u, store: u.config.archiveOf(u.name), folder: folder, building: folder + "~restoring", reported: time.Now()}
}

// run makes the copy, at least up to the note before the first that the home keeps.
func (r *restore) run(ctx context.Context, status sink.UnitStatus) error {
	end, err := r.u.firstKept(ctx, status)
	if err != nil {
		return err
	}
	history, err := r.store.List(ctx)
	if err != nil {
		return err
	}
	found, err := r.restoreTo(ctx, history, &target{end, status.Last, r.u.sumAtHome})
	switch {
	case archive.IsUnreadable(err):
		return r.u.refuse(fmt.Errorf("restore unit %s of state %s: %w", r.u.name, r.u.config.Name, err), r.hintOfOwner(status))
	case err == nil && !found:
		return r.refuse(ctx, history, end, status)
	}
	return err
}

// restoreTo makes the copy from the newest snapshot that can be loaded, or from the first note on. It
// returns false if the archive has neither.
func (r *restore) restoreTo(ctx context.Context, history *archive.History, t *target) (found bool, err error) {
	damaged := map[string]bool{} // snapshots
	for {
		b, err := findBase(ctx, r.store, history, t, func(s archive.SnapshotName) bool { return damaged[s.ID] })
		if b == nil || err != nil {
			return false, err
		}
		if err := r.useOutdated(ctx, history, b, t); err != nil {
			return true, err
		}
		err = r.build(ctx, history, b, t)
		if !errors.Is(err, errBadSnapshot) {
			return true, err
		}
		r.u.log.Error("a snapshot in the archive is damaged; trying an older one", "snapshot", b.snapshot.String(), "error", err)
		damaged[b.snapshot.ID] = true
	}
}

// errBadSnapshot says that a chunk of a snapshot is missing or damaged.
var errBadSnapshot = errors.New("the snapshot cannot be loaded")

// useOutdated continues with the outdated copy if that is newer than the snapshot.
func (r *restore) useOutdated(ctx context.Context, history *archive.History, b *base, t *target) error {
	if r.outdated == nil {
		return nil
	}
	chain, err := history.ChainTo(ctx, t.end)
	if err != nil {
		return err
	}
	_, r.sameHistory, err = t.has(ctx, chain, *r.outdated)
	if err != nil || !r.sameHistory || !r.complete || r.outdated.Number < b.snapshot.Applied.Number {
		return err
	}
	if _, err := os.Stat(r.building); err == nil {
		return nil
	}
	if err := os.Rename(r.folder, r.building); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("continue the copy of unit %s: %w", r.u.name, err)
	}
	return nil
}

// firstKept returns the note before the first one that the home keeps.
func (u *Unit) firstKept(ctx context.Context, status sink.UnitStatus) (before archive.Point, err error) {
	err = u.home.Notes(ctx, max(status.First, 1), func(n *sink.Note) error {
		if _, err := decodeNote(n); err != nil {
			return u.refuse(fmt.Errorf("note %d of unit %s in sink %s: %w", n.Number, u.name, u.config.HomeName, err), "restore the database from a backup")
		}
		before = archive.Point{Number: n.Number - 1, Sum: previousOf(n)}
		return errEnough
	})
	if err == nil {
		err = fmt.Errorf("sink %s has lost its notes of unit %s while they were read", u.config.HomeName, u.name)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return before, err
}

// sumAtHome returns the checksum of a note that the home keeps.
func (u *Unit) sumAtHome(ctx context.Context, number uint64) (sum uint64, err error) {
	err = u.home.Notes(ctx, number, func(n *sink.Note) error {
		if n.Number == number {
			sum = n.Sum
		}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return sum, err
}

// refuse says what is missing in the archive.
func (r *restore) refuse(ctx context.Context, history *archive.History, end archive.Point, status sink.UnitStatus) error {
	u := r.u
	missing, err := r.missing(ctx, history, end)
	if err != nil {
		return err
	}
	return u.refuse(fmt.Errorf("unit %s of state %s has no copy in %s that fits, sink %s keeps only the changes from note %d on, and %s",
		u.name, u.config.Name, r.folder, u.config.HomeName, status.First, missing), r.hintOfOwner(status))
}

// missing says why the archive does not lead to a note.
func (r *restore) missing(ctx context.Context, history *archive.History, end archive.Point) (string, error) {
	chain, err := history.ChainTo(ctx, end)
	if err != nil {
		return "", err
	}
	switch start := chain.Start(); {
	case len(history.Segments) == 0 && len(history.Snapshots) == 0:
		return fmt.Sprintf("archive %s has nothing of it", r.store), nil
	case start == end.Number:
		return fmt.Sprintf("archive %s lacks note %d, or has another history", r.store, end.Number), nil
	case len(history.Snapshots) > 0:
		return fmt.Sprintf("archive %s has only notes %d to %d that continue one another, and no snapshot of these", r.store, start+1, end.Number), nil
	}
	return fmt.Sprintf("archive %s has no snapshot of it", r.store), nil
}

func (r *restore) hintOfOwner(status sink.UnitStatus) string {
	return "its last owner, " + status.Owner + ", has a copy: run the pipeline there, or bring the folder of the state here while neither runs"
}

// build makes the copy from a base.
func (r *restore) build(ctx context.Context, history *archive.History, b *base, t *target) error {
	unit, at, parts, err := r.resume(ctx, history, b, t)
	if err != nil {
		return err
	}
	if unit == nil {
		if unit, err = r.load(ctx, b); err != nil {
			return err
		}
		at, parts = b.snapshot.Applied, b.parts
	}
	if at.Number <= t.end.Number { // the home has what follows a later note
		err = r.apply(ctx, unit, at, parts, t.end)
	}
	return errors.Join(err, unit.Close())
}

// resume returns the copy that a process has begun to make, the last note that is in it and what
// follows; nil if there is none, or if it does not lead to the end. A snapshot that is being loaded is
// left to load.
func (r *restore) resume(ctx context.Context, history *archive.History, b *base, t *target) (unit *nodedb.Unit, at archive.Point, parts []archive.Part, err error) {
	if _, err := os.Stat(r.building); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, at, nil, err
	}
	unit, err = nodedb.OpenUnit(r.building, nodedb.UnitOptions{FlushAge: r.u.config.FlushAge})
	if errors.Is(err, nodedb.ErrCorrupt) || errors.Is(err, nodedb.ErrNewer) { // it can be built again
		return nil, at, nil, os.RemoveAll(r.building)
	}
	if err != nil {
		return nil, at, nil, fmt.Errorf("open what was restored of unit %s: %w", r.u.name, err)
	}
	if unit.IsLoading() {
		if err = unit.Close(); err == nil && b.manifest == nil {
			err = os.RemoveAll(r.building)
		}
		return nil, at, nil, err
	}
	applied, begun, mark := unit.Positions()
	at = archive.Point{Number: applied, Sum: mark}
	fits := applied >= b.snapshot.Applied.Number && (begun == applied || b.manifest != nil && begun == b.snapshot.Begun.Number)
	if fits {
		var chain *archive.Chain
		if chain, err = history.ChainTo(ctx, t.end); err == nil {
			parts, fits, err = t.has(ctx, chain, at)
		}
	}
	if err == nil && fits {
		r.u.log.Info("continuing a restore of the state", "from note", applied)
		return unit, at, parts, nil
	}
	if err = errors.Join(err, unit.Close()); err == nil {
		err = os.RemoveAll(r.building)
	}
	return nil, at, nil, err
}

// load makes the unit of a snapshot, or an empty one.
func (r *restore) load(ctx context.Context, b *base) (*nodedb.Unit, error) {
	options := nodedb.UnitOptions{FlushAge: r.u.config.FlushAge}
	if b.manifest == nil {
		return nodedb.OpenUnit(r.building, options)
	}
	s := nodedb.Snapshot{
		Applied: b.snapshot.Applied.Number, AppliedMark: b.snapshot.Applied.Sum,
		Begun: b.snapshot.Begun.Number, BegunMark: b.snapshot.Begun.Sum, Clock: b.manifest.Clock,
	}
	l, err := nodedb.LoadUnit(r.building, options, s)
	if errors.Is(err, nodedb.ErrArgument) || errors.Is(err, nodedb.ErrCorrupt) { // of another snapshot
		if err := os.RemoveAll(r.building); err != nil {
			return nil, err
		}
		l, err = nodedb.LoadUnit(r.building, options, s)
	}
	if err != nil {
		return nil, err
	}
	r.u.log.Info("restoring the state from a snapshot", "note", s.Applied, "nodes", b.manifest.Nodes, "bytes", b.manifest.Size(), "chunks loaded", l.Loaded())
	for l.Loaded() < len(b.manifest.Chunks) && err == nil {
		if err = r.loadChunk(ctx, l, b); err == nil {
			r.u.config.callOnStep(InRestore)
			r.report(uint64(l.Loaded()), uint64(len(b.manifest.Chunks)), "chunks")
		}
	}
	if err == nil {
		err = l.Finish()
	}
	err = errors.Join(err, l.Close())
	if archive.IsUnreadable(err) || errors.Is(err, nodedb.ErrCorrupt) {
		err = errors.Join(err, errBadSnapshot)
	}
	if err != nil {
		return nil, err
	}
	return nodedb.OpenUnit(r.building, options)
}

func (r *restore) loadChunk(ctx context.Context, l *nodedb.UnitLoader, b *base) error {
	stored, err := r.store.ReadChunk(ctx, b.snapshot, b.manifest, l.Loaded())
	if err != nil {
		return err
	}
	data, err := chunkDecoder().DecodeAll(stored, nil)
	if err != nil {
		return fmt.Errorf("chunk %d of %s: %w: %w", l.Loaded(), b.snapshot, archive.ErrDamaged, err)
	}
	return l.Load(data)
}

// apply applies the notes of segments to a unit that has the notes up to at.
func (r *restore) apply(ctx context.Context, unit *nodedb.Unit, at archive.Point, parts []archive.Part, end archive.Point) error {
	first := at.Number
	for _, p := range parts {
		notes, err := r.store.ReadSegment(ctx, p.SegmentName)
		if err != nil {
			return err
		}
		for _, n := range notes {
			if n.Number <= at.Number || n.Number > p.Last {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			note, err := decodeNote(n)
			if err == nil {
				err = checkNote(n, at)
			}
			if err != nil {
				return fmt.Errorf("note %d in %s of archive %s: %w: %w", n.Number, p.SegmentName, r.store, archive.ErrDamaged, err)
			}
			if err := applyNote(unit, note); err != nil {
				return fmt.Errorf("unit %s: %w", r.u.name, err)
			}
			at = archive.Point{Number: n.Number, Sum: n.Sum}
		}
		r.u.config.callOnStep(InRestore)
		r.report(at.Number-first, end.Number-first, "notes")
	}
	if at != end {
		return fmt.Errorf("archive %s: the notes up to %d are restored, want those up to %d", r.store, at.Number, end.Number)
	}
	return nil
}

// report reports progress, at most every 10 s in the log.
func (r *restore) report(done, total uint64, what string) {
	if r.progress != nil {
		r.progress(Progress{done, total, what})
		return
	}
	if time.Since(r.reported) >= 10*time.Second {
		r.reported = time.Now()
		r.u.log.Info("restoring the state", "done", fmt.Sprintf("%d of %d %s", done, total, what))
	}
}

// replace makes what was built the copy. A copy of before gets the name aside.
func (r *restore) replace(aside string) (err error) {
	r.u.config.callOnStep(BeforeRename)
	if r.u.config.HasCopy(r.u.name) {
		err = os.Rename(r.folder, aside)
		if errors.Is(err, fs.ErrExist) { // a process was killed before it removed that one
			if err = os.RemoveAll(aside); err == nil {
				err = os.Rename(r.folder, aside)
			}
		}
	}
	if err == nil {
		err = os.Rename(r.building, r.folder)
	}
	if err == nil {
		err = durable.SyncDir(r.u.config.Folder)
	}
	if err != nil {
		return fmt.Errorf("put the restored copy of unit %s in its place: %w", r.u.name, err)
	}
	r.u.log.Info("the state is restored", "folder", r.folder)
	return nil
}

// NoArchive returns the error of operations that need an archive.
func (c *Config) NoArchive() error {
	return event.WithHint(fmt.Errorf("state %s has no archive", c.Name), "give it one: archive: {to: s3://BUCKET/PREFIX}, or a folder")
}

// restoreCommand is the command that restores a unit.
func (c *Config) restoreCommand(unit string) string {
	return fmt.Sprintf("perigee state restore CONFIG %s --unit %q", c.Name, unit)
}

func (c *Config) hintOfDamage(unit string) string {
	if c.Archive == nil {
		return "replace the folder by a copy of it; without one the state is lost"
	}
	return "stop the engine and take the state from the archive: " + c.restoreCommand(unit)
}

func (c *Config) hintOfSetBack(unit string) string {
	const why = "the sink was set back to an older state, or another sink is the home now"
	if c.Archive == nil {
		return why
	}
	return why + "; to go on with that state, stop the engine and take it from the archive: " + c.restoreCommand(unit)
}
