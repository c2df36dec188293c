// Package spool is a durable log of what senders hand over before anything else
// has it: entries of documents, appended in order, read from any position, given
// up from the front.
//
// An entry is there whole or not at all, and Append returns when it is on disk;
// entries that come while the disk is busy share the next sync. An entry may
// carry a key: for as long as the spool remembers it, the same key appends
// nothing and gets the receipt of the first time.
//
// A spool is a folder of segments. Its name is random and stays with the folder,
// so that a name and a position always mean the same document. A Spool is safe
// for concurrent use; each Reader has one user at a time.
package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
)

var (
	// ErrFull says that the spool holds as many bytes, or remembers as many
	// keys, as it may.
	ErrFull = errors.New("the spool is full")
	// ErrReused says that a key came again with another sum.
	ErrReused = errors.New("the key was used for other content")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the spool is closed")
)

// Options bound a spool.
type Options struct {
	Bytes   int64         // on disk at most, save for one entry
	Segment int64         // bytes of a segment after which another is begun
	Window  time.Duration // for which keys are remembered
	Keys    int           // remembered at most
}

// An Entry is what a sender hands over at once.
type Entry struct {
	Key  string // empty for none
	Sum  uint64 // of the content, to tell a repetition from a key used twice
	Data []byte // documents, back to back
	Ends []uint32
}

// A Receipt says where an entry is.
type Receipt struct {
	First, Count uint64
	Repeated     bool // an entry with the key was there already
}

// A Spool is open until it is closed.
type Spool struct {
	folder string
	opts   Options

	mu        sync.Mutex
	identity  identity
	recovered uint64        // the end when it was opened, or the first time since it was verified
	closed    []segment     // all but the last, by position
	last      segment       // that is written to
	end       uint64        // the position after the last that is on disk
	head      uint64        // all before it has been given up
	saved     time.Time     // when head was written to disk
	bytes     int64         // of all segments
	more      chan struct{} // closed when end moves or the spool closes
	shut      bool
	broken    error // a sync failed: what is on disk is not known any more
	keys      keys
	assigned  uint64  // the position that the next entry gets
	next      *commit // what the writer will write, nil for nothing

	file    *os.File // of the last segment; the writer's
	wake    chan struct{}
	writer  sync.WaitGroup
	closing sync.Once
}

// A commit is entries that reach the disk together.
type commit struct {
	frames []byte
	end    uint64
	keys   []string
	done   chan struct{}
	err    error // once done is closed
}

// Open opens the spool in folder, which is made when it is absent. An entry that
// was not whole when the process ended is cut off.
func Open(folder string, o Options) (*Spool, error) {
	s := &Spool{folder: folder, opts: o, more: make(chan struct{}), wake: make(chan struct{}, 1)}
	s.keys = keys{window: o.Window, max: o.Keys, known: make(map[string]known)}
	if err := s.recover(); err != nil {
		return nil, fmt.Errorf("open spool %s: %w", folder, err)
	}
	s.writer.Go(s.write)
	return s, nil
}

// Name identifies the spool and what its positions mean.
func (s *Spool) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.Name
}

// Bounds are the first position that is still there and the one after the last.
func (s *Spool) Bounds() (first, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first(), s.end
}

func (s *Spool) first() uint64 {
	if len(s.closed) > 0 {
		return s.closed[0].first
	}
	return s.last.first
}

// Append makes an entry durable. When ctx ends before that is known, its error
// is returned, and the entry may or may not be there.
func (s *Spool) Append(ctx context.Context, e Entry) (Receipt, error) {
	for {
		receipt, c, err := s.enqueue(&e)
		if c == nil {
			return receipt, err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return Receipt{}, ctx.Err()
		}
		if c.err != nil {
			return Receipt{}, c.err
		}
		if receipt.Count > 0 {
			return receipt, nil
		}
	}
}

// enqueue returns the commit to wait for: with the receipt of the entry, or
// without one when another with its key is on the way.
func (s *Spool) enqueue(e *Entry) (Receipt, *commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return Receipt{}, nil, err
	}
	now := time.Now()
	if k, found := s.keys.find(e.Key, now); found {
		switch {
		case k.Sum != e.Sum:
			return Receipt{}, nil, ErrReused
		case k.on != nil:
			return Receipt{}, k.on, nil
		}
		return Receipt{First: k.First, Count: k.Count, Repeated: true}, nil, nil
	}
	if len(e.Ends) == 0 {
		return Receipt{First: s.assigned}, nil, nil
	}
	if s.bytes >= s.opts.Bytes || !s.keys.room(e.Key) {
		return Receipt{}, nil, ErrFull
	}
	if s.next == nil {
		s.next = &commit{done: make(chan struct{})}
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	c, count := s.next, uint64(len(e.Ends))
	f := frame{first: s.assigned, when: now, entry: *e}
	c.frames = f.append(c.frames)
	s.bytes += f.size()
	s.assigned += count
	c.end = s.assigned
	if e.Key != "" {
		c.keys = append(c.keys, e.Key)
		s.keys.known[e.Key] = known{Key: e.Key, Sum: e.Sum, First: f.first, Count: count, When: now.Unix(), on: c}
	}
	return Receipt{First: f.first, Count: count}, c, nil
}

func (s *Spool) writable() error {
	if s.shut {
		return ErrClosed
	}
	return s.broken
}

// Release gives up everything before position to. Space is given back by
// segments.
func (s *Spool) Release(to uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to <= s.head {
		return nil
	}
	s.head = min(to, s.end)
	for len(s.closed) > 0 && s.closed[0].end <= s.head {
		if err := os.Remove(s.path(s.closed[0].first, segmentSuffix)); err != nil {
			return fmt.Errorf("give up a segment of the spool: %w", err)
		}
		s.bytes -= s.closed[0].bytes
		s.closed = s.closed[1:]
	}
	if time.Since(s.saved) > time.Second {
		return s.saveHead()
	}
	return nil
}

// Check compares the spool with what others say they have of it. When they have
// what the spool never held, as after a folder restored from a copy, positions
// would come to mean other documents: the spool takes a new name then, under
// which what they have of it counts as given up, and says so.
func (s *Spool) Check(done event.Ranges) (renamed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(done) == 0 || done[len(done)-1].End() <= s.recovered {
		return false, nil
	}
	if s.identity.verified {
		return false, nil // they have it from this process
	}
	old := event.Ranges{{Count: s.recovered}}
	return true, s.rename(old.Intersect(done))
}

// Verified says that what others have was checked, once for each name and
// process: what they have from now on came from here.
func (s *Spool) Verified() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity.verified {
		return nil
	}
	verified := identity{Name: s.identity.Name, Skip: s.identity.Skip, verified: true}
	if err := s.saveIdentity(verified); err != nil {
		return err
	}
	s.identity = verified
	return nil
}

// Skipped are the positions that count as given up since the spool was renamed.
func (s *Spool) Skipped() event.Ranges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.skipped()
}

// Head is the position before which all has been given up.
func (s *Spool) Head() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// Close writes what waits to be written, and ends every Reader once it has read
// all.
func (s *Spool) Close() error {
	var err error
	s.closing.Do(func() {
		s.mu.Lock()
		s.shut = true
		close(s.wake)
		close(s.more)
		s.mu.Unlock()
		s.writer.Wait()
		err = errors.Join(s.saveHead(), s.file.Close())
	})
	return err
}
