// Package wal implements the write-ahead log of an event store. It alone makes the rows of
// all tables, and the ranges of events that they came from, durable.
//
// Append makes an entry durable. If it returns nil, the entry survives a crash of the
// process, a crash of the machine and a power cut, whole and exactly once. If it returns an
// error, the entry is not in the log of this process. It may still appear in the log if a
// crash precedes the next successful Append. Entries that arrive during a sync share the next
// one.
//
// The log is a folder of files of frames. Entries go to the newest file, the active one. A
// file that is full or old enough is closed, and the next one begins. A closed file never
// changes. The owner of the log copies its entries elsewhere and then removes it.
//
// Open distinguishes a torn tail (an unacknowledged commit) from damage and truncates the
// tail. Damage is an unreadable acknowledged entry or a missing file. Open reports it as a
// *DamageError; a damaged log can only be opened read-only. The log assumes that a disk
// writes a sector of 512 bytes entirely or not at all, and that a write does not change other
// bytes of the sector.
//
// A failed write or sync leaves the contents of the disk unknown. The log then truncates the
// file after its last durable entry and closes it. The next commit begins another file, which
// records the end of the previous one. A full disk is such an error; commits resume when
// there is space.
//
// A Log is safe for concurrent use. A Reader is not, but it may read while the Log appends,
// in this process or another. Only one process at a time may open a folder for writing.
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
	// ErrClosed reports that Close was called.
	ErrClosed = errors.New("the event log is closed")
	// ErrReadOnly reports that the log was opened read-only.
	ErrReadOnly = errors.New("the event log is open read-only")
	// ErrTooLarge reports that an entry exceeds the maximum size.
	ErrTooLarge = fmt.Errorf("an entry of the event log has more than %d MiB", frame.RecordMax>>20)
)

const (
	fileSizeDefault = 64 << 20
	fileAgeDefault  = 10 * time.Minute
	// rotateRetry is the retry delay after a failure to close a file for its age.
	rotateRetry = 10 * time.Second
)

// Options configure a log.
type Options struct {
	Store    string        // id of the store, at most 32 bytes; files of another store are rejected
	First    uint64        // first file still needed, at least 1; Open removes earlier files
	FileSize int64         // size in bytes at which a file is closed; default 64 MiB
	FileAge  time.Duration // age of its first entry at which a file is closed; default 10 minutes
	ReadOnly bool          // change nothing, and read the remaining entries of a damaged log
}

// A Position is the position of an entry's start.
type Position struct {
	File   uint64 `json:"file"`
	Offset int64  `json:"offset"`
}

// Compare returns a negative number if p is before other in the log, zero if they are equal,
// and a positive number if p is after it.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.File, other.File), cmp.Compare(p.Offset, other.Offset))
}

func (p Position) String() string { return fmt.Sprintf("%d:%d", p.File, p.Offset) }

// A FileEnd is the durable extent of a file.
type FileEnd struct {
	Number uint64
	End    int64 // offset after the last entry
	Closed bool  // no more entries follow
	// Damaged are the parts before End without readable entries, in a log opened
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

	// Owned by the committing goroutine; there is one at a time.
	active      *file             // nil before the first commit and after a failed one
	next        uint64            // number of the file after the active one
	previousEnd int64             // end of the file before the active or next one
	preparing   chan preparedFile // receives the file after the active one; nil if none is being prepared
	ageTimer    *time.Timer
	finishing   sync.WaitGroup // of closed files

	fileClosed chan struct{}

	mu       sync.Mutex
	isClosed bool
	hasSpare bool          // there is a spare file
	files    []FileEnd     // by number
	changed  chan struct{} // closed by the next commit; nil if there are no waiters
	damage   []Damage

	// unfinished has the numbers of closed files that finishFile may still change. Such a
	// file must not be reused: the change would hit entries of the later file.
	unfinished map[uint64]bool
}

// A change is one caller's request to a commit: frames to append, or a file to close.
type change struct {
	frames   []byte
	position Position // of the first frame, once it is durable
	rotate   uint64   // number of the file to close; anyFile for the active one
	scrub    bool     // leave no file with entries of a removed one
	err      error    // result of a change that is not an append
}

const anyFile = ^uint64(0)

// Open opens the log in a folder and creates it if it is missing. It calls visit, which may
// be nil, for each entry in order. An entry is valid during the call. If visit returns an
// error, Open stops and returns it.
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
	l := &Log{folder: folder, options: o, fileClosed: make(chan struct{}, 1), unfinished: map[uint64]bool{}}
	l.commits = durable.NewGroupCommit(l.commit)
	if visit == nil {
		visit = func(Position, *Entry) error { return nil }
	}
	if err := l.recover(visit); err != nil {
		return nil, fmt.Errorf("open the event log in %s: %w", folder, err)
	}
	return l, nil
}

// Append durably appends frames made by AppendEntry: one, or several back to back, which then
// share a commit and a file. It returns the position of the first. If ctx ends while the
// frames wait for an earlier commit, Append does not append them and returns the context's
// error. The caller may reuse the memory when Append returns.
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

// checkFrames returns an error unless frames is a sequence of frames from AppendEntry.
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

// Scrub waits until the folder holds no byte of a removed file. Otherwise the log may reuse a
// removed file and overwrite it only gradually.
func (l *Log) Scrub(ctx context.Context) error {
	c := &change{scrub: true}
	if err := l.commits.Commit(ctx, c); err != nil {
		return err
	}
	return c.err
}

// Ends returns the files of the log, oldest first, with their durable ends.
func (l *Log) Ends() []FileEnd {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.files)
}

// End returns the position after the last durable entry. Entries appended from now on are at
// or after it.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.files) == 0 {
		return Position{File: l.options.First, Offset: headerSize}
	}
	last := l.files[len(l.files)-1]
	return Position{File: last.Number, Offset: last.End}
}

// Closed returns a channel that receives a value after files were closed; Ends lists them.
func (l *Log) Closed() <-chan struct{} { return l.fileClosed }

// Changed returns a channel that is closed by the next commit or by Close.
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

// Damage returns the unreadable parts of a log that was opened read-only.
func (l *Log) Damage() []Damage { return l.damage }

// RemoveBefore removes the closed files with numbers below first. No reader may use them,
// because the log may reuse them as later files. If the process ends before RemoveBefore has
// finished, Open with First completes it.
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

// Close closes the log after the current commit. Calls that wait for a later commit return
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

// notify wakes callers that wait for a change. The caller holds mu.
func (l *Log) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// writable returns an error if the log cannot be appended to.
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

// fullDiskHint is the advice for a full disk.
const fullDiskHint = "free space on the disk of the data folder; appending goes on when there is room"

// explain adds the failed operation to an error, and advice if the disk is full.
func explain(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if isDiskFull(err) {
		return event.WithHint(err, fullDiskHint)
	}
	return err
}
