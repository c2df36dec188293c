// Package ledger decides which events of a partition are committed, each one once, however
// often and by whichever owner it is delivered. A sink that delivers exactly once keeps a
// Ledger beside the store of its rows and commits only under a reservation of it.
//
// A commit has three steps. Reserve waits until no other commit in flight has one of the
// positions, and returns which of them are missing. The caller commits their rows, the
// range and all else that belongs to it in one transaction of its store. Finish records
// the outcome. The rules:
//
//   - Reservations do not overlap. Positions that are missing at Reserve are missing until Finish.
//   - Only the owner reserves. A new owner fences the previous one. Reservations of the previous
//     owner still count, and the new owner waits where it overlaps them.
//   - After an unknown outcome nothing is reserved until a renewal: the store fences commits that
//     may still be in flight and returns the committed positions.
//   - Committed positions stay committed. If a renewal misses some, the owner fails with a
//     *LostError. Only Replace forgets positions, and it fences the owner.
//
// A Ledger keeps positions and no fingerprints. Those tell whether a position still means
// the same event, which the source decides before it reads on. A reservation passes the
// fingerprints of its range through, and each store keeps them in its own form.
//
// Ledger and Owner are safe for concurrent use.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/event"
)

// ErrFenced says that another owner has taken over the partition.
var ErrFenced = errors.New("another owner has taken over the partition")

// A LostError names positions that were committed and no longer are: the store was set
// back to an older state.
type LostError struct{ Lost event.Ranges }

func (e *LostError) Error() string { return fmt.Sprintf("committed events are lost: %v", e.Lost) }

// A Ledger holds the committed positions of one partition, and those in flight.
type Ledger struct {
	renew func(context.Context) (event.Ranges, error)

	mu        sync.Mutex
	committed event.Ranges
	reserved  []event.Range
	owner     *Owner        // nil if it was fenced and has no successor
	exclusive bool          // a renewal or Replace runs, or waits for the reservations to end; nothing is reserved
	unknown   bool          // an outcome is unknown
	changed   chan struct{} // closed by the next change that a caller may wait for; nil if none waits
}

// New returns the ledger of a partition with the given positions committed. It copies
// them, without fingerprints.
//
// After an unknown outcome the ledger calls renew while nothing is reserved. renew makes
// sure that no earlier commit can still become durable, and returns all positions that
// are committed. It may be nil if every outcome is known.
func New(committed event.Ranges, renew func(context.Context) (event.Ranges, error)) *Ledger {
	return &Ledger{renew: renew, committed: positions(committed)}
}

// positions returns a copy of rs without fingerprints.
func positions(rs event.Ranges) event.Ranges {
	var plain event.Ranges
	for _, r := range rs {
		plain.Add(event.Range{First: r.First, Count: r.Count})
	}
	return plain
}

// Committed returns a copy of the committed positions.
func (l *Ledger) Committed() event.Ranges {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.committed)
}

// TakeOver fences the owner and returns a new one. It does not wait for the reservations
// of the previous owner; see Drain.
func (l *Ledger) TakeOver() *Owner {
	o := &Owner{ledger: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setOwner(o)
	return o
}

// Fence fences the owner: it reserves nothing more.
func (l *Ledger) Fence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setOwner(nil)
}

// setOwner fences the owner for the sake of next, which may be nil. The caller holds mu.
func (l *Ledger) setOwner(next *Owner) {
	if l.owner != nil {
		l.owner.fail(ErrFenced)
	}
	l.owner = next
	l.notify()
}

// Drain waits until nothing is reserved. After TakeOver, Committed then has all that
// previous owners have committed and will ever commit.
func (l *Ledger) Drain(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.exclusive || len(l.reserved) > 0 {
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Replace fences the owner, waits until nothing is reserved, and calls change, which
// makes sure that no earlier commit can still become durable and returns what is
// committed from then on. If change fails, nothing else has changed. A new owner waits for
// Replace.
func (l *Ledger) Replace(ctx context.Context, change func() (event.Ranges, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setOwner(nil)
	return l.runAlone(ctx, func() error {
		committed, err := change()
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.committed = positions(committed)
		}
		return err
	})
}

// runAlone calls f, without mu, while nothing is reserved and no other call of runAlone
// runs. The caller holds mu.
func (l *Ledger) runAlone(ctx context.Context, f func() error) error {
	for l.exclusive {
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	l.exclusive = true
	defer func() {
		l.exclusive = false
		l.notify()
	}()
	for len(l.reserved) > 0 {
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	return f()
}

// wait returns after the next change, or with the error of ctx. The caller holds mu,
// which wait releases meanwhile.
func (l *Ledger) wait(ctx context.Context) error {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notify wakes the callers of wait. The caller holds mu.
func (l *Ledger) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// isInFlight reports whether a reservation has a position of r. The caller holds mu.
func (l *Ledger) isInFlight(r event.Range) bool {
	return slices.ContainsFunc(l.reserved, func(held event.Range) bool {
		return max(held.First, r.First) < min(held.End(), r.End())
	})
}

// An Owner is the right to commit positions of a partition.
type Owner struct {
	ledger  *Ledger
	failure error // why it reserves nothing more; ledger.mu protects it
}

// Fail makes all later calls of Reserve return err, unless they already fail.
func (o *Owner) Fail(err error) {
	o.ledger.mu.Lock()
	defer o.ledger.mu.Unlock()
	o.fail(err)
	o.ledger.notify()
}

// fail is Fail for a caller that holds ledger.mu.
func (o *Owner) fail(err error) {
	if o.failure == nil {
		o.failure = err
	}
}

// Err returns the error of all later reservations: ErrFenced, a *LostError, that of
// Fail, or nil.
func (o *Owner) Err() error {
	o.ledger.mu.Lock()
	defer o.ledger.mu.Unlock()
	return o.failure
}

// Reserve waits until no other reservation has a position of r, renews the ledger if an
// outcome is unknown, and reserves r. The caller must call Finish once. A reservation of
// an empty range holds off renewals, Drain and Replace, and nothing else.
//
// An error of renew is returned and does not fail the owner: the next Reserve renews.
func (o *Owner) Reserve(ctx context.Context, r event.Range) (Reservation, error) {
	l, plain := o.ledger, event.Range{First: r.First, Count: r.Count}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		err := o.failure
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case err != nil:
		case l.exclusive || l.isInFlight(plain):
			err = l.wait(ctx)
		case l.unknown:
			err = o.renew(ctx)
		default:
			l.reserved = append(l.reserved, plain)
			return Reservation{Missing: l.committed.Missing(r), reserved: plain, ledger: l}, nil
		}
		if err != nil {
			return Reservation{}, err
		}
	}
}

// renew learns what is committed, once nothing is reserved. The caller holds ledger.mu.
func (o *Owner) renew(ctx context.Context) error {
	l := o.ledger
	return l.runAlone(ctx, func() error {
		committed, err := l.renew(ctx)
		if err != nil {
			return err
		}
		found := positions(committed)
		l.mu.Lock()
		defer l.mu.Unlock()
		var lost event.Ranges
		for _, known := range l.committed {
			for _, gap := range found.Missing(known) {
				lost.Add(gap)
			}
		}
		if len(lost) > 0 && l.owner != nil {
			l.owner.fail(&LostError{lost}) // maybe a successor of o
		}
		l.committed, l.unknown = found, false
		return nil
	})
}

// A Reservation holds positions of a partition for one commit.
type Reservation struct {
	// Missing are the positions that are not committed, with the fingerprints of the
	// range that was asked for. Nobody else commits them before Finish.
	Missing event.Ranges

	reserved event.Range
	ledger   *Ledger
}

// Rows returns the runs [first, end) of rows of out that come from missing positions.
func (r Reservation) Rows(out *event.Output) iter.Seq2[int, int] {
	return func(yield func(first, end int) bool) {
		if r.Missing.Covers(out.Range.First, out.Range.End()) {
			if out.Len() > 0 {
				yield(0, out.Len())
			}
			return
		}
		for first := 0; first < out.Len(); first++ {
			end := first
			for end < out.Len() && r.Missing.Has(out.Position(end)) {
				end++
			}
			if end > first && !yield(first, end) {
				return
			}
			first = end
		}
	}
}

// An Outcome is how a commit ended.
type Outcome int

const (
	// Unknown: the missing positions may be committed, now or later. It is the zero
	// value, since it is the one that is never wrong.
	Unknown Outcome = iota
	// Aborted: none is committed, nor will be.
	Aborted
	// Committed: all are committed, durably.
	Committed
)

// Finish ends the reservation.
func (r Reservation) Finish(how Outcome) {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	switch how {
	case Committed:
		l.committed.Add(r.reserved)
	case Unknown:
		l.unknown = true
	}
	i := slices.IndexFunc(l.reserved, func(held event.Range) bool {
		return held.First == r.reserved.First && held.Count == r.reserved.Count
	})
	l.reserved = slices.Delete(l.reserved, i, i+1)
	l.notify()
}
