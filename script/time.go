package script

import (
	"context"
	"time"
)

type timeKey struct{}

// WithTime returns a context in which code that runs sees the time at as the present. Engines run
// batches that have a state with their event.Batch.Time.
func WithTime(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, timeKey{}, at)
}

// TimeOf returns the time that WithTime has set.
func TimeOf(ctx context.Context) (at time.Time, fixed bool) {
	at, fixed = ctx.Value(timeKey{}).(time.Time)
	return at, fixed
}
