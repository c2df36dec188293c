package state

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

// EventTime says that the clock of units follows the times in events.
type EventTime struct {
	Field    []string   // path of the time in an event
	Unit     event.Unit // of times that are numbers
	Lateness time.Duration
	// Idle is how long a partition without events holds the clock back.
	Idle time.Duration
}

// aheadMax is how far ahead of the machine's clock the time of an event may be to move the clock of
// a unit, which never goes back.
const aheadMax = 24 * time.Hour

// An eventClock derives the clock of a unit from the times of events: the least over its partitions
// of the greatest time less the lateness. Partitions that are idle do not count; if all are, the
// greatest counts. It is safe for concurrent use.
type eventClock struct {
	settings EventTime

	mu         sync.Mutex
	extractor  *document.Extractor
	columns    event.Columns
	all        []time.Time // memory of times
	partitions map[string]*partitionTime
}

// A partitionTime is what is known of a partition.
type partitionTime struct {
	latest time.Time // the greatest time of an event; zero for none
	heard  time.Time // when the last event came, or when the partition was listed
}

func newEventClock(settings EventTime) *eventClock {
	spec := []event.Column{{Name: "time", Path: settings.Field, Type: event.Timestamp, Unit: settings.Unit}}
	return &eventClock{settings: settings, extractor: document.NewExtractor(spec), partitions: map[string]*partitionTime{}}
}

// setPartitions says which partitions the unit has.
func (c *eventClock) setPartitions(names []string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if c.partitions[name] == nil {
			c.partitions[name] = &partitionTime{heard: now}
		}
	}
	for name := range c.partitions {
		if !slices.Contains(names, name) {
			delete(c.partitions, name)
		}
	}
}

// times yields the times of the events of a batch that have one. c.mu is held.
func (c *eventClock) times(b *event.Batch) (all []time.Time, err error) {
	c.columns.Reset()
	if _, err := c.extractor.Extract(b.Data, b.Ends, &c.columns); err != nil {
		return nil, fmt.Errorf("extract the times of events: %w", err)
	}
	all = c.all[:0]
	times := &c.columns.Vectors[0]
	for i, micros := range times.Ints {
		if times.Null[i] == 0 {
			all = append(all, time.UnixMicro(micros))
		}
	}
	c.all = all
	return all, nil
}

// preview takes the first time of a batch that is about to run, if it is the first of its partition.
func (c *eventClock) preview(b *event.Batch, now, limit time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.partitions[b.Partition]
	if p == nil || !p.latest.IsZero() {
		return nil
	}
	times, err := c.times(b)
	if len(times) > 0 && !times[0].After(limit) {
		p.heard, p.latest = now, times[0]
	}
	return err
}

// observe takes the times of events that have run, up to a limit, and returns how many are before
// clock. Events without a time do not count.
func (c *eventClock) observe(b *event.Batch, clock, now, limit time.Time) (late uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	times, err := c.times(b)
	if err != nil {
		return 0, err
	}
	var greatest time.Time
	for _, at := range times {
		if at.Before(clock) {
			late++
		}
		if at.After(greatest) && !at.After(limit) {
			greatest = at
		}
	}
	if p := c.partitions[b.Partition]; p != nil {
		p.heard, p.latest = now, latest(p.latest, greatest)
	}
	return late, nil
}

// at returns the time that the clock shows; zero if nothing is known. A partition without an event
// so far holds the clock back if the unit has had one, since its events may be behind those of the
// others.
func (c *eventClock) at(now time.Time, hadClock bool) (at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var greatest time.Time
	allIdle := true
	for _, p := range c.partitions {
		greatest = latest(greatest, p.latest)
		if now.Sub(p.heard) >= c.settings.Idle || p.latest.IsZero() && !hadClock {
			continue
		}
		if allIdle || p.latest.Before(at) {
			at = p.latest
		}
		allIdle = false
	}
	if allIdle {
		at = greatest
	}
	if at.IsZero() {
		return at
	}
	return at.Add(-c.settings.Lateness).Truncate(time.Millisecond)
}

// SetPartitions says which partitions of the source the unit has, for a clock that follows the times
// of events.
func (u *Unit) SetPartitions(names []string) {
	if u.events != nil {
		u.events.setPartitions(names, time.Now())
	}
}

// Preview says which events are about to run, so that a partition's first delivery has their time.
func (u *Unit) Preview(b *event.Batch) error {
	if u.events == nil {
		return nil
	}
	now := time.Now()
	return u.events.preview(b, now, now.Add(aheadMax))
}

// Observe takes the times of events that have run at a clock. It returns how many of them are late.
// It does nothing unless the clock follows the times of events.
func (u *Unit) Observe(b *event.Batch, clock time.Time) (late uint64, err error) {
	if u.events == nil {
		return 0, nil
	}
	now := time.Now()
	return u.events.observe(b, clock, now, now.Add(aheadMax))
}

// FollowsEvents reports whether the clock follows the times of events.
func (u *Unit) FollowsEvents() bool { return u.events != nil }

// Now returns the clock of a delivery that begins now.
func (u *Unit) Now() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now().Truncate(time.Millisecond)
	if u.events != nil {
		now = u.events.at(now, !u.clock.IsZero())
	}
	u.clock = latest(u.clock, now)
	return u.clock
}
