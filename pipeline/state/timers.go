package state

import (
	"context"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
)

// DueTimers returns at most limit timers that are due by the delivery's clock, in the order in
// which they are due. The run of the script on them removes those that succeed.
func (d *Delivery) DueTimers(ctx context.Context, limit int) ([]lua.Timer, error) {
	due, _, err := lua.DueTimers(ctx, d.Tx(), d.Clock, limit)
	return due, err
}

// AppendTimers appends timers to an empty batch, from its first position on.
func AppendTimers(b *event.Batch, due []lua.Timer) (err error) {
	b.Timers = true
	for _, t := range due {
		if b.Data, err = t.AppendTo(b.Data); err != nil {
			return err
		}
		b.Ends = append(b.Ends, uint32(len(b.Data)))
	}
	b.Range.Count = uint64(b.Len())
	return nil
}

// NextTimer returns when a clock, which counts whole milliseconds, shows that the first timer is
// due; false if there is none.
func (d *Delivery) NextTimer(ctx context.Context) (at time.Time, found bool, err error) {
	_, next, err := lua.DueTimers(ctx, d.Tx(), time.Time{}, 0)
	if at = next.Truncate(time.Millisecond); at.Before(next) {
		at = at.Add(time.Millisecond)
	}
	return at, !next.IsZero(), err
}

// RemoveTimer removes a timer whose run has failed, unless it was set to another time since.
func (d *Delivery) RemoveTimer(t lua.Timer) error {
	if err := lua.RemoveTimer(d.Tx(), t); err != nil {
		return fmt.Errorf("remove timer %v: %w", t.Key, err)
	}
	return nil
}

// A DueTimer is a timer that waits.
type DueTimer struct {
	Key string    `json:"key"`
	Due time.Time `json:"due"`
}

// NextTimers returns the timers of a unit that are due first, at most limit.
func NextTimers(ctx context.Context, tx *nodedb.Tx, limit int) (next []DueTimer, err error) {
	due, _, err := lua.DueTimers(ctx, tx, time.Unix(1<<40, 0), limit)
	for _, t := range due {
		next = append(next, DueTimer{t.Key.String(), time.UnixMicro(int64(t.Due * 1e6)).UTC()})
	}
	return next, err
}
