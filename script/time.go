package script

import (
	"context"
	"time"
)

type timeKey struct{}

type timeContext struct {
	context.Context
	at time.Time
}

func (c *timeContext) Value(key any) any {
	if key == (timeKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// WithTime returns a context in which code that runs sees the time at as the present. Engines run
// batches that have a state with their event.Batch.Time.
func WithTime(ctx context.Context, at time.Time) context.Context { return &timeContext{ctx, at} }

// TimeOf returns the time that WithTime has set.
func TimeOf(ctx context.Context) (at time.Time, fixed bool) {
	c, fixed := ctx.Value(timeKey{}).(*timeContext)
	if !fixed {
		return at, false
	}
	return c.at, true
}
