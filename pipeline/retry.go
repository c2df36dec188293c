package pipeline

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

const (
	firstPause = 50 * time.Millisecond // before the second attempt; doubles from there
	lastPause  = 5 * time.Second
	sayEvery   = 10 * time.Second // between two log records about the same trouble
)

// retry calls f until it succeeds or fails for good, with growing pauses.
func (p *Pipeline) retry(ctx context.Context, t *trouble, f func() error) error {
	err := f()
	if err == nil || !passes(ctx, err) {
		return err
	}
	t.begin()
	defer func() { t.end(err) }()
	for attempt := 0; passes(ctx, err); attempt++ {
		t.failed(err)
		if !sleep(ctx, backoff(attempt)) {
			return ctx.Err()
		}
		err = f()
	}
	return err
}

// passes tells whether err is one that time mends.
func passes(ctx context.Context, err error) bool {
	var (
		refused       *sink.RowErrors
		permanentSink *sink.PermanentError
		permanent     *source.PermanentError
	)
	return err != nil && ctx.Err() == nil && err != io.EOF &&
		!errors.Is(err, sink.ErrFenced) && !errors.Is(err, source.ErrMoved) &&
		!errors.As(err, &refused) && !errors.As(err, &permanentSink) && !errors.As(err, &permanent)
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

// A trouble is what is wrong with one neighbour of the pipeline, for all lanes
// together. It logs the first failure, one every sayEvery, and the recovery.
type trouble struct {
	what   string
	log    *slog.Logger
	status *status

	mu       sync.Mutex
	waiting  int // lanes that wait for it to pass
	since    time.Time
	said     time.Time
	silent   bool // nothing was said since waiting rose from 0
	failures uint64
}

func (p *Pipeline) newTrouble(what string) *trouble {
	return &trouble{what: what, log: p.log, status: &p.status}
}

func (t *trouble) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == 0 {
		t.since, t.silent = time.Now(), true
	}
	t.waiting++
}

func (t *trouble) failed(err error) {
	t.status.failed(t, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures++
	if now := time.Now(); now.Sub(t.said) >= sayEvery {
		t.said, t.silent = now, false
		t.log.Warn(t.what+" failed, trying again", "error", err, "failures", t.failures)
	}
}

// end is called by each lane that has begun; err is nil when f succeeded.
func (t *trouble) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
	if t.waiting > 0 {
		return
	}
	t.status.recovered(t)
	if err == nil && !t.silent {
		t.log.Info(t.what+" works again", "after", time.Since(t.since).Round(time.Millisecond))
	}
}

func (t *trouble) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}
