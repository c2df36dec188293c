package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/sink"
)

const (
	// archiveAge is how long a note waits for a segment, unless many do.
	archiveAge = 10 * time.Second
	// archiveBytes is the size of waiting notes that are archived at once.
	archiveBytes = 1 << 20
	// archiveRetry is the longest wait after a failure.
	archiveRetry = 10 * time.Second
	// snapshotBytes is the least size of segments that a snapshot replaces.
	snapshotBytes = 16 << 20
	// chunkBytes is about the size of a chunk before it is compressed.
	chunkBytes = 4 << 20
)

var (
	chunkEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
		return e
	})
	chunkDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(512<<20))
		return d
	})
)

// archiveOf returns the part of the archive that has a unit; nil without an archive.
func (c *Config) archiveOf(unit string) *archive.Unit {
	if c.Archive == nil {
		return nil
	}
	return archive.NewUnit(c.Archive, strings.TrimSuffix(c.homePrefix(), "/"), folderName(unit))
}

// CanRestore reports whether a unit can be opened without a copy on this machine.
func (c *Config) CanRestore() bool { return c.Archive != nil }

// ArchiveStatus says how far the archive is behind the home.
type ArchiveStatus struct {
	Archived     uint64 `json:"archived"`      // number of the last note in it; 0 if that is not known yet
	WaitingNotes uint64 `json:"waiting_notes"` // for the archive
	WaitingBytes uint64 `json:"waiting_bytes"`
	Error        string `json:"error,omitempty"` // of the last attempt
}

// An archiver writes the notes that the home has, and now and then a snapshot of the copy, to the
// archive while its unit is open. After a failure the notes stay at the home, and the archiver retries.
type archiver struct {
	u        *Unit
	store    *archive.Unit
	requests chan *snapshotRequest
	stop     func()
	ended    chan struct{} // closed when the goroutine has ended

	// Of the goroutine, or of Close once that has ended:
	located      bool          // archived and what follows are known
	archived     archive.Point // the last note in the archive
	needSnapshot bool          // no restore is possible without one
	since        int64         // bytes of segments since the last snapshot
	lastSnapshot int64         // its bytes
	failing      bool
	retry        time.Duration // more until the next attempt

	mu       sync.Mutex
	status   ArchiveStatus
	written  uint64    // bytes of notes archived by this process
	backlog  uint64    // bytes of notes that waited when the unit was opened
	waitFrom time.Time // since when a note waits; zero: none does
}

// A snapshotRequest asks for a snapshot now.
type snapshotRequest struct {
	ctx      context.Context
	progress func(Progress)
	result   SnapshotResult
	err      error
	done     chan struct{}
}

// Progress says how much of a snapshot, a restore or a verification is done.
type Progress struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"` // 0: unknown
	What  string `json:"what"`  // is counted, such as "nodes"
}

// SnapshotResult describes a snapshot that was made.
type SnapshotResult struct {
	Note  uint64 `json:"note"` // number of the last note that is completely in it
	Nodes uint64 `json:"nodes"`
	Bytes uint64 `json:"bytes"` // in the archive
}

func (u *Unit) startArchiving() {
	store := u.config.archiveOf(u.name)
	if store == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &archiver{u: u, store: store, requests: make(chan *snapshotRequest), ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		a.run(ctx)
	}()
	a.stop = func() {
		cancel()
		<-a.ended
	}
	u.archiver = a
}

func (a *archiver) run(ctx context.Context) {
	for {
		var request *snapshotRequest
		select {
		case <-time.After(min(trimInterval, a.age()) + a.retry):
		case request = <-a.requests:
		case <-ctx.Done():
			return
		}
		if request != nil {
			a.serve(request)
			continue
		}
		err := a.step(ctx)
		if errors.Is(err, sink.ErrFenced) || ctx.Err() != nil {
			return
		}
		a.recordAttempt(err)
	}
}

func (a *archiver) age() time.Duration {
	if a.u.config.ArchiveAge > 0 {
		return a.u.config.ArchiveAge
	}
	return archiveAge
}

// recordAttempt logs the first failure, and the end of failures.
func (a *archiver) recordAttempt(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Error = ""
	switch {
	case err != nil:
		if !a.failing {
			a.u.log.Warn("archiving failed; the home keeps the notes until it succeeds", "archive", a.store.String(), "error", err)
		}
		a.status.Error = err.Error()
		a.retry = min(max(2*a.retry, trimInterval), archiveRetry)
	case a.failing:
		a.u.log.Info("archiving succeeds again", "archive", a.store.String())
		fallthrough
	default:
		a.retry = 0
	}
	a.failing = err != nil
}

// step archives what is due.
func (a *archiver) step(ctx context.Context) error {
	if err := a.locate(ctx); err != nil {
		return err
	}
	if err := a.archiveDue(ctx); err != nil {
		return err
	}
	if !a.snapshotIsDue() {
		return nil
	}
	_, err := a.snapshot(ctx, nil)
	return err
}

func (a *archiver) snapshotIsDue() bool {
	least := a.u.config.SnapshotBytes
	if least == 0 {
		least = snapshotBytes
	}
	return a.archived.Number > 0 && (a.needSnapshot || a.since >= max(least, a.lastSnapshot))
}

// locate finds the last note of the home that is in the archive. A segment counts if its checksums
// join it to the notes of the home.
func (a *archiver) locate(ctx context.Context) error {
	if a.located {
		return nil
	}
	history, err := a.store.List(ctx)
	if err != nil {
		return err
	}
	status, err := a.u.home.Status(ctx)
	if err != nil {
		return err
	}
	last := uint64(0) // that a segment has
	for _, s := range history.Segments {
		last = max(last, s.End.Number)
	}
	a.u.mu.Lock()
	opened := a.u.opened
	a.u.mu.Unlock()
	var archived archive.Point
	var backlog uint64
	covered := map[archive.Point]bool{}
	err = a.u.home.Notes(ctx, max(status.First, 1), func(n *sink.Note) error {
		at := archive.Point{Number: n.Number, Sum: n.Sum}
		if len(covered) == 0 {
			archived = archive.Point{Number: n.Number - 1, Sum: previousOf(n)}
			covered[archived] = true
			status.First = n.Number
		}
		for _, s := range history.Ends(at) {
			if s.Before.Number+1 < status.First || covered[s.Before] {
				archived, backlog = at, 0
				covered[at] = true
			}
		}
		if n.Number <= opened && n.Number > archived.Number {
			backlog += uint64(len(n.Data))
		}
		if n.Number >= max(last, opened) {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if err := a.locateSnapshot(ctx, history, archived); err != nil {
		return err
	}
	a.located = true
	a.advance(archived)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backlog = backlog
	return nil
}

// errEnough ends a visit of notes early.
var errEnough = errors.New("no further note is needed")

// locateSnapshot finds the snapshot that a restore would begin with.
func (a *archiver) locateSnapshot(ctx context.Context, history *archive.History, end archive.Point) error {
	base, err := findBase(ctx, a.store, history, &target{end: end, last: end.Number}, nil)
	if err != nil {
		return err
	}
	a.needSnapshot, a.since, a.lastSnapshot = base == nil, 0, 0
	if base == nil {
		return nil
	}
	for _, p := range base.parts {
		a.since += p.Size
	}
	if base.manifest != nil {
		a.lastSnapshot = base.manifest.Size()
	}
	return nil
}

// advance sets the last note in the archive. Those before it may be removed from the home.
func (a *archiver) advance(to archive.Point) {
	a.archived = to
	a.u.mu.Lock()
	defer a.u.mu.Unlock()
	a.u.archived = to.Number
}

// archiveDue archives the notes that wait, if they wait for long or are many.
func (a *archiver) archiveDue(ctx context.Context) error {
	waiting := a.u.archiveStatus(a)
	a.mu.Lock()
	switch {
	case waiting.WaitingNotes == 0:
		a.waitFrom = time.Time{}
	case a.waitFrom.IsZero():
		a.waitFrom = time.Now()
	}
	due := waiting.WaitingNotes > 0 && (time.Since(a.waitFrom) >= a.age() || waiting.WaitingBytes >= archiveBytes)
	a.mu.Unlock()
	if !due {
		return nil
	}
	return a.archiveNotes(ctx)
}

// archiveNotes archives all notes that the home has.
func (a *archiver) archiveNotes(ctx context.Context) error {
	for {
		notes, err := a.nextNotes(ctx)
		if err != nil || len(notes) == 0 {
			return err
		}
		a.u.config.callOnStep(BeforeSegment)
		name, err := a.store.PutSegment(ctx, a.archived, notes)
		if err != nil {
			return err
		}
		a.u.config.callOnStep(AfterSegment)
		a.advance(name.End)
		a.since += name.Size
		a.mu.Lock()
		for _, n := range notes {
			a.written += uint64(len(n.Data))
		}
		a.waitFrom = time.Time{}
		a.mu.Unlock()
	}
}

// nextNotes returns the notes for the next segment.
func (a *archiver) nextNotes(ctx context.Context) (notes []*sink.Note, err error) {
	last, size := a.archived, 0
	err = a.u.home.Notes(ctx, last.Number+1, func(n *sink.Note) error {
		if err := checkNote(n, last); err != nil {
			return fmt.Errorf("note %d of unit %s in sink %s: %w", n.Number, a.u.name, a.u.config.HomeName, err)
		}
		kept := *n
		kept.Data = append([]byte(nil), n.Data...)
		notes = append(notes, &kept)
		last = archive.Point{Number: n.Number, Sum: n.Sum}
		if size += len(n.Data); size >= archive.SegmentBytes {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return notes, err
}

// snapshot makes a snapshot of the copy while that changes; see nodedb.Snapshot.
func (a *archiver) snapshot(ctx context.Context, progress func(Progress)) (result SnapshotResult, err error) {
	stats, err := a.u.copy.Stats()
	if err != nil {
		return result, err
	}
	began, id, m := time.Now(), archive.NewID(), &archive.Manifest{}
	var s nodedb.Snapshot
	for from := []byte(nil); ; {
		c, err := a.u.copy.ReadChunk(from, chunkBytes)
		if err != nil {
			return result, fmt.Errorf("read the copy of unit %s: %w", a.u.name, err)
		}
		if from != nil {
			c.Applied, c.AppliedMark = s.Applied, s.AppliedMark
		}
		s, from = c.Snapshot, c.Next
		sum, err := a.store.PutChunk(ctx, id, len(m.Chunks), chunkEncoder().EncodeAll(c.Data, nil))
		if err != nil {
			return result, err
		}
		m.Chunks = append(m.Chunks, sum)
		m.Nodes += c.Nodes
		m.Bytes += uint64(len(c.Data))
		a.u.config.callOnStep(InSnapshot)
		if progress != nil {
			progress(Progress{m.Nodes, max(stats.Nodes, m.Nodes), "nodes"})
		}
		if from == nil {
			break
		}
		if err := a.archiveDue(ctx); err != nil {
			return result, err
		}
	}
	if a.archived.Number < s.Begun { // a restore needs them
		if err := a.archiveNotes(ctx); err != nil {
			return result, err
		}
	}
	m.Clock = s.Clock
	name := archive.SnapshotName{Applied: archive.Point{Number: s.Applied, Sum: s.AppliedMark}, Begun: archive.Point{Number: s.Begun, Sum: s.BegunMark}, ID: id}
	a.u.config.callOnStep(BeforeSnapshot)
	if err := a.store.PutSnapshot(ctx, name, m); err != nil {
		return result, err
	}
	a.u.config.callOnStep(AfterSnapshot)
	a.needSnapshot, a.since, a.lastSnapshot = false, 0, m.Size()
	a.u.log.Info("the state has a new snapshot", "note", s.Applied, "nodes", m.Nodes, "bytes", m.Size(), "duration", time.Since(began).Round(time.Millisecond).String())
	if err := a.removeOutdated(ctx); err != nil && ctx.Err() == nil {
		a.u.log.Warn("removing old parts of the archive failed; the next snapshot retries it", "archive", a.store.String(), "error", err)
	}
	return SnapshotResult{Note: s.Applied, Nodes: m.Nodes, Bytes: uint64(m.Size())}, nil
}

// removeOutdated removes what is older than the archive is to keep.
func (a *archiver) removeOutdated(ctx context.Context) error {
	if a.u.config.Keep <= 0 {
		return nil
	}
	since := time.Now().Add(-a.u.config.Keep)
	history, err := a.store.List(ctx)
	if err != nil {
		return err
	}
	base, err := findBase(ctx, a.store, history, &target{end: a.archived, last: a.archived.Number}, func(s archive.SnapshotName) bool { return !s.Modified.Before(since) })
	if err != nil || base == nil || base.manifest == nil {
		return err
	}
	a.u.config.callOnStep(BeforeRemoval)
	removed, err := a.store.Remove(ctx, history, base.snapshot, since)
	if removed > 0 {
		a.u.log.Debug("removed old parts of the archive", "objects", removed)
	}
	return err
}

// serve makes a snapshot for Unit.Snapshot.
func (a *archiver) serve(r *snapshotRequest) {
	defer close(r.done)
	if r.err = a.locate(r.ctx); r.err == nil {
		r.result, r.err = a.snapshot(r.ctx, r.progress)
	}
}

// Snapshot makes a snapshot in the archive now. progress may be nil.
func (u *Unit) Snapshot(ctx context.Context, progress func(Progress)) (SnapshotResult, error) {
	if u.archiver == nil {
		return SnapshotResult{}, u.config.NoArchive()
	}
	r := &snapshotRequest{ctx: ctx, progress: progress, done: make(chan struct{})}
	if err := u.copy.Sync(ctx); err != nil { // the snapshot then has all notes of now
		return SnapshotResult{}, err
	}
	select {
	case u.archiver.requests <- r:
	case <-u.archiver.ended:
		return SnapshotResult{}, fmt.Errorf("unit %s of state %s was given up", u.name, u.config.Name)
	case <-ctx.Done():
		return SnapshotResult{}, ctx.Err()
	}
	<-r.done
	return r.result, r.err
}

// closeArchiver archives what the home has, for a bounded time. The notes that are not archived stay
// there.
func (u *Unit) closeArchiver() {
	a := u.archiver
	if a == nil {
		return
	}
	a.stop()
	if a.failing {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := a.locate(ctx)
	if err == nil {
		err = a.archiveNotes(ctx)
	}
	if err != nil && !errors.Is(err, sink.ErrFenced) {
		u.log.Warn("archiving failed; the home keeps the notes", "archive", a.store.String(), "error", err)
	}
}

// ArchiveStatus says how far the archive is; nil without one.
func (u *Unit) ArchiveStatus() *ArchiveStatus {
	if u.archiver == nil {
		return nil
	}
	status := u.archiveStatus(u.archiver)
	return &status
}

func (u *Unit) archiveStatus(a *archiver) ArchiveStatus {
	u.mu.Lock()
	last, archived, committed := u.last, u.archived, u.committed
	u.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	status := a.status
	status.Archived = archived
	status.WaitingNotes = last - min(last, archived)
	if all := a.backlog + committed; all > a.written && status.WaitingNotes > 0 {
		status.WaitingBytes = all - a.written
	}
	return status
}
