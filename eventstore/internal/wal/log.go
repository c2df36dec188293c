// Package wal is the write-ahead log of an event store: the one place where the rows of all
// its tables, and the ranges of events that they came from, become durable.
//
// Append makes an entry durable: when it returns nil, the entry is found again after a crash
// of the process, of the machine, and after a power cut, whole and once. When it returns an
// error, the entry is not in the log of this process; after a crash before the next
// successful Append it may be found in the log all the same. Entries that arrive during a
// sync share the next one.
//
// The log is a folder of files of frames. Entries go to the newest file, the active one; a
// file that is full, or old enough, is closed and the next begins. A closed file never
// changes. The owner of the log copies its entries elsewhere and then removes it.
//
// Open tells a torn tail, which a power cut leaves of a commit that nobody heard was
// durable, from damage. It cuts off the tail. Damage, which is an acknowledged entry that
// cannot be read, or a missing file, is a *DamageError, and a log that has some can only be
// opened read-only. It is assumed that a disk writes a sector of 512 bytes whole or not at
// all, and that a write does not change what lies beside it in a sector.
//
// A write or sync that fails leaves unknown what is on the disk. The file is then cut where
// its last durable entry ends and closed, and the next commit begins another one, which
// records where that was. A full disk is such an error, and commits go on when there is
// room.
//
// A Log is safe for concurrent use. A Reader has one user at a time, and reads beside the
// Log, in this process or another. One process at a time may open a folder to write.
package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

var (
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the event log is closed")
	// ErrReadOnly says that the log was opened read-only.
	ErrReadOnly = errors.New("the event log is open read-only")
	// ErrTooLarge says that an entry has more bytes than one can have.
	ErrTooLarge = fmt.Errorf("an entry of the event log has more than %d MiB", frame.RecordMax>>20)
)

const (
	fileSizeDefault = 64 << 20
	fileAgeDefault  = 10 * time.Minute
	// How long the log waits until it tries again to close a file for its age.
	rotateRetry = 10 * time.Second
)

// Options are the settings of a log.
type Options struct {
	Store    string        // the id of the store, at most 32 bytes; files of another store are refused
	First    uint64        // the first file that is still needed, at least 1; Open removes those below it
	FileSize int64         // bytes from which on a file is closed; default 64 MiB
	FileAge  time.Duration // age of its first entry at which a file is closed; default 10 minutes
	ReadOnly bool          // change nothing, and read what is left of a damaged log
}

// A Position is where an entry begins.
type Position struct {
	File   uint64
	Offset int64
}

// Compare returns a negative number if p lies before other in the log, and a positive one if
// it lies behind.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.File, other.File), cmp.Compare(p.Offset, other.Offset))
}

func (p Position) String() string { return fmt.Sprintf("%d:%d", p.File, p.Offset) }

// A FileEnd tells how much of a file is durable.
type FileEnd struct {
	Number uint64
	End    int64 // offset behind the last entry
	Closed bool  // nothing more comes
	// Damaged are the parts before End without readable entries, in a log that was opened
	// read-only.
	Damaged []Span
}

// A Span is a part of a file.
type Span struct{ Begin, End int64 }

// A Log is an open log.
type Log struct {
	folder  string
	options Options
	commits *durable.GroupCommit[*change]
	closing sync.Once

	// Of the goroutine that commits, which is one at a time.
	active      *file             // nil before the first commit and after one that failed
	next        uint64            // number of the file after the active one
	previousEnd int64             // where the file before the active or next one ends
	preparing   chan preparedFile // receives the file after the active one; nil if none was begun
	ageTimer    *time.Timer
	finishing   sync.WaitGroup // of files that were closed

	fileClosed chan struct{}

	mu       sync.Mutex
	isClosed bool
	hasSpare bool          // there is a spare file
	files    []FileEnd     // by number
	changed  chan struct{} // closed by the next commit; nil if nobody waits
	damage   []Damage
}

// A change is what one caller wants of a commit: frames to append, or a file to close.
type change struct {
	frames   []byte
	position Position // of the first frame, once it is durable
	rotate   uint64   // the number of the file to close; anyFile for the active one
	scrub    bool     // no file may hold entries of a removed one
	err      error    // of what is not an append
}

const anyFile = ^uint64(0)

// Open opens the log in a folder, and creates it if it is missing. It calls visit with each
// entry, which is valid during the call, in order; visit may be nil. An error of visit ends
// Open, which returns it.
func Open(folder string, o Options, visit func(Position, *Entry) error) (*Log, error) {
	o.First = max(o.First, 1)
	o.FileSize = cmp.Or(o.FileSize, fileSizeDefault)
	o.FileAge = cmp.Or(o.FileAge, fileAgeDefault)
	if !machineFits {
		return nil, errors.New("the event log needs a machine with little-endian numbers")
	}
	if len(o.Store) > storeMax {
		return nil, fmt.Errorf("the store's id %q has more than %d bytes", o.Store, storeMax)
	}
	l := &Log{folder: folder, options: o, fileClosed: make(chan struct{}, 1)}
	l.commits = durable.NewGroupCommit(l.commit)
	if visit == nil {
		visit = func(Position, *Entry) error { return nil }
	}
	if err := l.recover(visit); err != nil {
		return nil, fmt.Errorf("open the event log in %s: %w", folder, err)
	}
	return l, nil
}

// Append makes frames durable, which AppendEntry has made: one, or several back to back,
// which then share a commit and a file. It returns the position of the first. If ctx ends
// while the frames wait for an earlier commit, they are not appended and Append returns the
// context's error. The memory belongs to the caller again when Append returns.
func (l *Log) Append(ctx context.Context, frames []byte) (Position, error) {
	if err := checkFrames(frames); err != nil {
		return Position{}, err
	}
	c := &change{frames: frames}
	if err := l.commits.Commit(ctx, c); err != nil {
		return Position{}, err
	}
	return c.position, nil
}

// checkFrames returns an error unless frames is what AppendEntry makes.
func checkFrames(frames []byte) error {
	if len(frames) == 0 {
		return errors.New("nothing to append to the event log")
	}
	for len(frames) > 0 {
		n, ok := frameSize(frames)
		if !ok {
			return ErrTooLarge
		}
		frames = frames[n:]
	}
	return nil
}

// frameSize returns the size of the first frame.
func frameSize(frames []byte) (n int, ok bool) {
	length, _, err := frame.ParsePrefix(frames)
	if err != nil || length%8 != 0 || length <= trailerSize || length > len(frames)-frame.PrefixSize {
		return 0, false
	}
	return frame.PrefixSize + length, true
}

// Rotate closes the active file, if it has entries, and begins the next.
func (l *Log) Rotate(ctx context.Context) error {
	c := &change{rotate: anyFile}
	if err := l.commits.Commit(ctx, c); err != nil {
		return err
	}
	return c.err
}

// Scrub returns when no byte of a removed file is left in the folder: without it, a removed
// file may become a new one, which is written over bit by bit.
func (l *Log) Scrub(ctx context.Context) error {
	c := &change{scrub: true}
	if err := l.commits.Commit(ctx, c); err != nil {
		return err
	}
	return c.err
}

// Ends returns the files of the log, oldest first, and how much of each is durable.
func (l *Log) Ends() []FileEnd {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.files)
}

// End returns the position behind the last durable entry: entries that are appended from now
// on do not lie before it.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.files) == 0 {
		return Position{File: l.options.First, Offset: headerSize}
	}
	last := l.files[len(l.files)-1]
	return Position{File: last.Number, Offset: last.End}
}

// Closed receives a value after files were closed; Ends tells which.
func (l *Log) Closed() <-chan struct{} { return l.fileClosed }

// Changed returns a channel that the next commit, or Close, closes.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
		if l.isClosed {
			close(l.changed)
		}
	}
	return l.changed
}

// Damage returns what cannot be read of a log that was opened read-only.
func (l *Log) Damage() []Damage { return l.damage }

// RemoveBefore removes the closed files whose number is below first, of which no reader may
// read any more: a later file may be made of one. If the process ends before it has, Open
// with First does it.
func (l *Log) RemoveBefore(first uint64) error {
	if l.options.ReadOnly {
		return ErrReadOnly
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.files) > 0 && l.files[0].Closed && l.files[0].Number < first {
		if err := l.discardFile(l.files[0].Number); err != nil {
			return fmt.Errorf("remove a file of the event log: %w", err)
		}
		l.files = slices.Clone(l.files[1:])
	}
	return nil
}

// Close ends the log after the commit that is under way. What waits for a later one gets
// ErrClosed.
func (l *Log) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		l.isClosed = true
		l.notify()
		l.mu.Unlock()
		_ = l.commits.Flush() // no commit uses the files from now on
		if l.ageTimer != nil {
			l.ageTimer.Stop()
		}
		if l.preparing != nil {
			if next := <-l.preparing; next.file != nil {
				_ = next.file.Close()
			}
		}
		l.finishing.Wait()
		if !l.options.ReadOnly {
			_ = removeUnused(l.folder)
		}
		if l.active != nil {
			_ = l.active.Close() // everything in it is durable
		}
	})
	return nil
}

// notify wakes who waits for a change. The caller holds mu.
func (l *Log) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// writable returns why nothing can be appended, if so.
func (l *Log) writable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isClosed:
		return ErrClosed
	case l.options.ReadOnly:
		return ErrReadOnly
	}
	return nil
}

// fullDiskHint is what to do about a disk without room.
const fullDiskHint = "free space on the disk of the data folder; appending goes on when there is room"

// explain tells what failed, and what to do if the disk is full.
func explain(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if isDiskFull(err) {
		return event.WithHint(err, fullDiskHint)
	}
	return err
}
