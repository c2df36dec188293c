package state

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// DefaultBudget is the memory of a Budget that no configuration sets.
const DefaultBudget = 384 << 20

// A Budget bounds the memory of all units of an engine: of deltas in flight, and of committed
// changes that wait for the disk. A run of a script begins while there is room, so that the memory
// exceeds the budget by the deltas of the runs that have begun. It is safe for concurrent use.
type Budget struct {
	mu    sync.Mutex
	limit int64
	units map[*Unit]int64 // their memory when it was last looked at
	used  int64           // the sum
}

// NewBudget returns a budget of so many bytes; 0 means DefaultBudget.
func NewBudget(bytes int64) *Budget {
	b := &Budget{units: map[*Unit]int64{}}
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

// add makes a unit one of those that use the budget.
func (b *Budget) add(u *Unit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.units[u] = 0
}

// remove ends the use by a unit, and waits until nothing flushes it.
func (b *Budget) remove(u *Unit) {
	b.mu.Lock()
	b.used -= b.units[u]
	delete(b.units, u)
	b.mu.Unlock()
	u.flushes.Wait()
}

// set records the memory of a unit, and reports how full the budget is.
func (b *Budget) set(u *Unit, bytes int64) (used, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, known := b.units[u]; known {
		b.used += bytes - before
		b.units[u] = bytes
	}
	return b.used, b.limit
}

// flush writes to disk what waits in memory, in the background. It leaves out units with less than
// the others, so that many small ones are not all synced.
func (b *Budget) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for u, bytes := range b.units {
		if bytes*int64(len(b.units)) >= b.used {
			u.flush()
		}
	}
}

// flush writes committed changes to disk, in the background, and records what is left.
func (u *Unit) flush() {
	if !u.flushing.CompareAndSwap(false, true) {
		return
	}
	u.flushes.Go(func() {
		defer u.flushing.Store(false)
		_ = u.copy.Sync(context.Background()) // WaitForRoom reports why it fails
		bytes, _ := u.copy.Memory()
		u.config.Budget.set(u, bytes)
	})
}

const (
	firstRoomWait   = 2 * time.Millisecond
	longestRoomWait = 100 * time.Millisecond
)

// WaitForRoom waits until the budget has room for another delivery, and the disk takes what was
// committed. It calls report with the reason once it waits, and again when the reason changes.
func (u *Unit) WaitForRoom(ctx context.Context, report func(reason error)) error {
	b := u.config.Budget
	if b == nil {
		return nil
	}
	reported := ""
	for wait := firstRoomWait; ; wait = min(2*wait, longestRoomWait) {
		bytes, err := u.copy.Memory()
		used, limit := b.set(u, bytes)
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
