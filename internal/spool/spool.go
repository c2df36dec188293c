// Package spool is a durable log between senders and a pipeline: entries of
// documents are appended in order, read from any position and trimmed from the
// front.
//
// An entry is on disk whole or not at all, and Append returns when it is; entries
// that arrive during a sync share the next one. An entry may carry an idempotency
// key: while the spool remembers the key, appending under it again stores nothing
// and returns the receipt of the first time.
//
// A spool is a folder of segments. Its ID is random and stays with the folder, so
// that an ID and a position always mean the same document. A Spool is safe for
// concurrent use; each Reader has one user at a time.
package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

var (
	// ErrFull says that the spool holds as many bytes, or remembers as many
	// keys, as it may.
	ErrFull = errors.New("the spool is full")
	// ErrSenderKeys says that the spool remembers as many keys of a sender as it may.
	ErrSenderKeys = errors.New("this sender has used too many idempotency keys")
	// ErrKeyReused says that a key came again with other content.
	ErrKeyReused = errors.New("the key was used for other content")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the spool is closed")
)

// Options bound a spool.
type Options struct {
	BytesMax     int64         // on disk, plus one entry
	SegmentBytes int64         // size from which on a segment is followed by another
	KeyWindow    time.Duration // how long keys are remembered
	KeysMax      int           // how many are remembered

	KeysPerSender int // how many of one sender are remembered, since the spool was opened; 0 means KeysMax
}

// An Entry is what a sender hands over at once.
type Entry struct {
	Key    string // idempotency key; empty for none
	Sender string // who used the key; not stored
	Sum    uint64 // checksum of the content, which tells a repetition from a reused key
	Data   []byte // documents, back to back
	Ends   []uint32
}

// A Receipt says where an entry is.
type Receipt struct {
	First, Count uint64
	Repeated     bool // an entry with the key was stored before
}

// A Spool is an open folder of segments.
type Spool struct {
	folder  string
	options Options
	commits *durable.GroupCommit[*pendingAppend]

	// Used by the writer that commits, which is one at a time.
	file   *os.File // of the active segment
	keys   keyTable
	frames []byte // spare memory

	mu           sync.Mutex
	identity     identity
	recoveredEnd uint64        // end when the spool was opened, or the first time since it was verified
	sealed       []segment     // all but the active one, by position
	active       segment       // the one that is appended to
	end          uint64        // position after the last that is on disk
	lowWatermark uint64        // all before it may be removed
	savedAt      time.Time     // when lowWatermark was last written to disk
	bytes        int64         // of all segments
	grown        chan struct{} // closed when end moves or the spool closes
	closed       bool
	broken       error // a sync failed: what is on disk is unknown
	closing      sync.Once
}

// A pendingAppend is an entry that waits for its commit, and the answer to it.
type pendingAppend struct {
	entry   *Entry
	receipt Receipt
	err     error
}

// Open opens the spool in folder and creates the folder when it does not exist. An
// entry that a crash left incomplete is cut off.
func Open(folder string, o Options) (*Spool, error) {
	s := &Spool{folder: folder, options: o, grown: make(chan struct{})}
	s.keys = keyTable{window: o.KeyWindow, max: o.KeysMax, maxOfSender: cmp.Or(o.KeysPerSender, o.KeysMax), byKey: map[string]keyRecord{}, ofSender: map[string]int{}}
	s.commits = durable.NewGroupCommit(s.commit)
	if err := s.recover(); err != nil {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
		return nil, fmt.Errorf("open spool %s: %w", folder, err)
	}
	return s, nil
}

// ID identifies the spool and what its positions mean.
func (s *Spool) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.ID
}

// Bounds returns the first position that is still on disk and the one after the
// last.
func (s *Spool) Bounds() (first, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first(), s.end
}

func (s *Spool) first() uint64 {
	if len(s.sealed) > 0 {
		return s.sealed[0].first
	}
	return s.active.first
}

// Append makes an entry durable. When ctx ends while the entry waits for an
// earlier sync, the entry is not stored and Append returns the context's error.
func (s *Spool) Append(ctx context.Context, e Entry) (Receipt, error) {
	a := &pendingAppend{entry: &e}
	if err := s.commits.Commit(ctx, a); err != nil {
		return Receipt{}, err
	}
	return a.receipt, a.err
}

// maxSpareFrames bounds the memory that is kept between commits.
const maxSpareFrames = 1 << 20

// commit answers a group of appends and makes the entries among them durable. An
// error is the answer to all of them, and none is stored.
func (s *Spool) commit(group []*pendingAppend) error {
	if err := s.writable(); err != nil {
		return err
	}
	var added []string // keys
	next, now := s.end, time.Now()
	s.frames = s.frames[:0]
	for _, a := range group {
		a.receipt, a.err = s.admit(a.entry, next, now)
		if a.err != nil || a.receipt.Count == 0 || a.receipt.Repeated {
			continue
		}
		f := storedEntry{first: next, when: now, entry: *a.entry}
		s.frames = f.appendFrame(s.frames)
		if a.entry.Key != "" {
			s.keys.add(&f)
			added = append(added, a.entry.Key)
		}
		next = f.end()
	}
	if len(s.frames) == 0 {
		return nil
	}
	err := s.rollIfFull()
	if err == nil {
		err = s.write(s.frames)
	}
	if err != nil {
		s.keys.remove(added)
	} else {
		s.publish(next, int64(len(s.frames)))
	}
	if cap(s.frames) > maxSpareFrames {
		s.frames = nil
	}
	return err
}

func (s *Spool) writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return s.broken
}

// admit returns the receipt that e gets when its first position is next.
func (s *Spool) admit(e *Entry, next uint64, now time.Time) (Receipt, error) {
	if k, found := s.keys.find(e.Key, now); found {
		if k.Sum != e.Sum {
			return Receipt{}, ErrKeyReused
		}
		return Receipt{First: k.First, Count: k.Count, Repeated: true}, nil
	}
	if len(e.Ends) == 0 {
		return Receipt{First: next}, nil
	}
	s.mu.Lock()
	bytes := s.bytes + int64(len(s.frames))
	s.mu.Unlock()
	if bytes >= s.options.BytesMax || !s.keys.hasRoom(e.Key, now) {
		return Receipt{}, ErrFull
	}
	if !s.keys.hasRoomFor(e.Sender, e.Key, now) {
		return Receipt{}, ErrSenderKeys
	}
	return Receipt{First: next, Count: uint64(len(e.Ends))}, nil
}

// write writes and syncs frames at the end of the active segment. When that fails, it
// cuts off what it wrote. When the sync failed, the contents of the disk are unknown, and the
// spool takes nothing more until it is opened again.
func (s *Spool) write(frames []byte) error {
	if _, err := s.file.WriteAt(frames, s.active.bytes); err != nil {
		if truncateErr := s.file.Truncate(s.active.bytes); truncateErr != nil {
			s.markBroken(truncateErr)
		}
		return fmt.Errorf("write to the spool: %w", err)
	}
	if err := s.file.Sync(); err != nil {
		s.markBroken(err)
		// The system shows frames that it could not write, and takes them for written:
		// without the cut, a spool that is opened again would acknowledge them.
		return fmt.Errorf("sync the spool: %w", errors.Join(err, s.file.Truncate(s.active.bytes)))
	}
	return nil
}

func (s *Spool) markBroken(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = fmt.Errorf("the spool in %s failed and must be opened again: %w", s.folder, err)
}

// publish shows readers what has reached the disk.
func (s *Spool) publish(end uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += bytes
	s.active.bytes += bytes
	s.active.end, s.end = end, end
	if !s.closed {
		close(s.grown)
		s.grown = make(chan struct{})
	}
}

// Trim says that nobody needs the entries before a position any more. Space is
// freed by segments.
func (s *Spool) Trim(before uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowWatermark = max(s.lowWatermark, min(before, s.end))
	for len(s.sealed) > 0 && s.sealed[0].end <= s.lowWatermark {
		// After a power cut, no segment may be missing behind one that is there. An
		// earlier call may have removed the file, and not known that for good.
		err := os.Remove(s.path(s.sealed[0].first, segmentSuffix))
		if err == nil || errors.Is(err, os.ErrNotExist) {
			err = durable.SyncDir(s.folder)
		}
		if err != nil {
			return fmt.Errorf("remove a segment of the spool: %w", err)
		}
		s.bytes -= s.sealed[0].bytes
		s.sealed = s.sealed[1:]
	}
	if time.Since(s.savedAt) > time.Second {
		return s.saveLowWatermark()
	}
	return nil
}

// LowWatermark returns the position before which everything was trimmed.
func (s *Spool) LowWatermark() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lowWatermark
}

// DetectRollback compares the spool with the positions that sinks have of it. When
// they have positions that the spool never held, its folder was restored from an
// older copy, and its positions would come to mean other documents. The spool then
// takes a new ID, under which it skips what the sinks have, and returns true.
func (s *Spool) DetectRollback(done event.Ranges) (renamed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(done) == 0 || done[len(done)-1].End() <= s.recoveredEnd {
		return false, nil
	}
	if s.identity.verified {
		return false, nil // they have it from this process
	}
	old := event.Ranges{{Count: s.recoveredEnd}}
	return true, s.takeNewID(old.Intersect(done))
}

// MarkVerified says that DetectRollback has seen what all sinks have: what they
// have from now on came from this spool. It costs a write once for each ID and
// process.
func (s *Spool) MarkVerified() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity.verified {
		return nil
	}
	verified := identity{ID: s.identity.ID, Skip: s.identity.Skip, verified: true}
	if err := s.saveIdentity(verified); err != nil {
		return err
	}
	s.identity = verified
	return nil
}

// Skipped returns the positions that sinks had when the spool took its ID.
func (s *Spool) Skipped() event.Ranges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.skipped()
}

// Close writes what waits to be written, and ends every Reader once it has read
// all.
func (s *Spool) Close() (err error) {
	s.closing.Do(func() {
		_ = s.commits.Flush() // the senders hear what failed
		s.mu.Lock()
		s.closed = true
		close(s.grown)
		s.mu.Unlock()
		_ = s.commits.Flush() // a commit that began before
		s.mu.Lock()
		defer s.mu.Unlock()
		err = errors.Join(s.saveLowWatermark(), s.file.Close())
	})
	return err
}
