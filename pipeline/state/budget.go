package state

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// DefaultBudget is the memory of a Budget that no configuration sets.
const DefaultBudget = 384 << 20

// A Budget bounds the memory of all units of an engine: of deltas in flight, and of committed
// changes that wait for the disk. A run of a script begins while there is room, so that the memory
// exceeds the budget by the deltas of the runs that have begun. It is safe for concurrent use.
type Budget struct {
	mu    sync.Mutex
	limit int64
	all   map[*share]int64 // their memory when it was last looked at
	used  int64            // the sum
}

// NewBudget returns a budget of so many bytes; 0 means DefaultBudget.
func NewBudget(bytes int64) *Budget {
	b := &Budget{all: map[*share]int64{}}
	b.SetLimit(bytes)
	return b
}

// SetLimit changes the number of bytes; 0 means DefaultBudget.
func (b *Budget) SetLimit(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit = bytes; bytes <= 0 {
		b.limit = DefaultBudget
	}
}

// bytes returns the limit; 0 for none.
func (b *Budget) bytes() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

// A share is what one copy of a unit uses of a budget.
type share struct {
	budget   *Budget // nil: nothing bounds the memory
	copy     *nodedb.Unit
	flushing atomic.Bool // a flush runs
	flushes  sync.WaitGroup
}

// newShare makes a copy one of those that use a budget, which may be nil.
func newShare(b *Budget, copy *nodedb.Unit) *share {
	s := &share{budget: b, copy: copy}
	if b != nil {
		b.set(s, 0, true)
	}
	return s
}

// end ends the use, and waits until nothing flushes the copy.
func (s *share) end() {
	if s == nil {
		return
	}
	if b := s.budget; b != nil {
		b.mu.Lock()
		b.used -= b.all[s]
		delete(b.all, s)
		b.mu.Unlock()
	}
	s.flushes.Wait()
}

// set records the memory of a copy, unless its use has ended, and reports how full the budget is.
func (b *Budget) set(s *share, bytes int64, begins bool) (used, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, known := b.all[s]; known || begins {
		b.used += bytes - before
		b.all[s] = bytes
	}
	return b.used, b.limit
}

// flush writes to disk what waits in memory, in the background. It leaves out units with less than
// the others, so that many small ones are not all synced.
func (b *Budget) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s, bytes := range b.all {
		if bytes*int64(len(b.all)) >= b.used {
			s.flush()
		}
	}
}

// flush writes committed changes to disk, in the background, and records what is left.
func (s *share) flush() {
	if !s.flushing.CompareAndSwap(false, true) {
		return
	}
	s.flushes.Go(func() {
		defer s.flushing.Store(false)
		_ = s.copy.Sync(context.Background()) // waitForRoom reports why it fails
		bytes, _ := s.copy.Memory()
		s.budget.set(s, bytes, false)
	})
}

const (
	firstRoomWait   = 2 * time.Millisecond
	longestRoomWait = 100 * time.Millisecond
)

// WaitForRoom waits until the budget has room for another delivery, and the disk takes what was
// committed. It calls report with the reason once it waits, and again when the reason changes.
func (u *Unit) WaitForRoom(ctx context.Context, report func(reason error)) error {
	return u.share.waitForRoom(ctx, report)
}

func (s *share) waitForRoom(ctx context.Context, report func(reason error)) error {
	if s == nil || s.budget == nil {
		return nil
	}
	b := s.budget
	reported := ""
	for wait := firstRoomWait; ; wait = min(2*wait, longestRoomWait) {
		bytes, err := s.copy.Memory()
		used, limit := b.set(s, bytes, false)
		if used >= limit/8*7 { // before, a unit writes when much of it waits, and what is not young
			b.flush()
		}
		if err == nil && used >= limit {
			err = fmt.Errorf("the changes of states in memory take %d MiB, and state_memory is %d MiB: waiting until they are committed and on the disk", used>>20, limit>>20)
		}
		if err == nil {
			return nil
		}
		if text := err.Error(); text != reported && wait > firstRoomWait {
			reported = text
			report(err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
