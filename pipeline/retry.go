package pipeline

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

const (
	firstPause = 50 * time.Millisecond // before the second attempt; doubles from there
	lastPause  = 5 * time.Second
	sayEvery   = 10 * time.Second // between two log records about the same trouble

	quickAttempts = 6                    // after a conflict, before it counts as trouble
	quickPause    = 2 * time.Millisecond // before the first of them; doubles from there
)

// retry calls f until it succeeds or fails for good, with growing pauses. When
// ctx ends first, its error is returned.
func (t *trouble) retry(ctx context.Context, f func() error) (err error) {
	if err = f(); !passes(err) {
		return err
	}
	if err = t.retryAtOnce(ctx, f, err); !passes(err) {
		return err
	}
	t.begin()
	defer func() { t.end(err) }()
	for attempt := 0; passes(err); attempt++ {
		if ctx.Err() == nil {
			t.failed(err)
			if attempt+1 >= breakAfter {
				t.lasts()
			}
			sleep(ctx, backoff(attempt))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = f()
	}
	return err
}

// retryAtOnce calls f again, a few times, as long as it loses against another
// transaction. The pauses are random: who met once must not meet again.
func (t *trouble) retryAtOnce(ctx context.Context, f func() error, err error) error {
	for attempt := range quickAttempts {
		if !errors.Is(err, sink.ErrConflict) || !sleep(ctx, rand.N(quickPause<<attempt)) {
			break
		}
		t.missed()
		err = f()
	}
	return err
}

// passes tells whether err is one that time mends.
func passes(err error) bool {
	var refused *sink.RowErrors
	return err != nil && err != io.EOF &&
		!errors.Is(err, sink.ErrFenced) && !errors.Is(err, source.ErrMoved) &&
		!errors.As(err, &refused) && !event.IsPermanent(err)
}

// backoff is how long to wait after an attempt, counted from 0: half of it fixed
// and half at random, so that lanes do not come all at once.
func backoff(attempt int) time.Duration {
	d := lastPause
	if attempt < 10 {
		d = min(d, firstPause<<attempt)
	}
	return d/2 + rand.N(d/2)
}

// sleep waits for d and reports whether ctx lasted that long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A pace spaces out something that may happen again and again: the longer the
// row of quick repetitions, the longer the wait.
type pace struct {
	last    time.Time
	attempt int
}

func (p *pace) next() time.Duration {
	now := time.Now()
	if now.Sub(p.last) > 2*lastPause {
		p.attempt = 0
	}
	d := backoff(p.attempt)
	p.last = now.Add(d)
	p.attempt++
	return d
}
