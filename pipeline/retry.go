package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

const (
	firstWait   = 50 * time.Millisecond // before the second attempt; doubles from there
	longestWait = 5 * time.Second
	logInterval = 10 * time.Second // between two log records about the same failure

	conflictAttempts  = 6                    // after a conflict, before it counts as a failure
	firstConflictWait = 2 * time.Millisecond // before the first of them; doubles from there
)

// A retrier repeats calls to one dependency of a pipeline until they succeed, for
// all lanes together. It logs the first failure, one every logInterval, and the
// recovery.
type retrier struct {
	name    string
	log     *slog.Logger
	status  *status
	breaker *circuitBreaker // tripped by repeated failures; nil if reading helps to recover

	mu       sync.Mutex
	waiting  int // calls between their first failure and their end
	since    time.Time
	logged   time.Time
	quiet    bool // no failure was logged since waiting rose from 0
	tripped  bool // this retrier tripped the breaker
	failures uint64
}

func (p *Pipeline) newRetrier(name string, b *circuitBreaker) *retrier {
	return &retrier{name: name, log: p.log, status: &p.status, breaker: b}
}

// do calls f until it succeeds or fails permanently, with growing waits. If ctx
// ends first, do returns its error.
func (r *retrier) do(ctx context.Context, f func() error) (err error) {
	if err = f(); !isTransient(err) {
		return err
	}
	if err = r.retryConflict(ctx, f, err); !isTransient(err) {
		return err
	}
	r.startWaiting()
	defer func() { r.stopWaiting(err) }()
	for attempt := 0; isTransient(err); attempt++ {
		if ctx.Err() == nil {
			r.recordFailure(err)
			if attempt+1 >= failuresToTrip {
				r.tripBreaker()
			}
			sleep(ctx, backoffWait(attempt))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = f()
	}
	return err
}

// retryConflict repeats f a few times while it conflicts with other transactions.
// The waits are random, so that the same transactions do not conflict again.
func (r *retrier) retryConflict(ctx context.Context, f func() error, err error) error {
	for attempt := range conflictAttempts {
		if !errors.Is(err, sink.ErrConflict) || !sleep(ctx, rand.N(firstConflictWait<<attempt)) {
			break
		}
		r.countFailure()
		err = f()
	}
	return err
}

// isTransient reports whether retrying helps against err.
func isTransient(err error) bool {
	var rejected *sink.RowErrors
	return err != nil && err != io.EOF && !event.IsPermanent(err) &&
		!errors.Is(err, sink.ErrFenced) && !errors.Is(err, source.ErrMoved) && !errors.As(err, &rejected)
}

// startWaiting is called once by each call that starts to wait for recovery.
func (r *retrier) startWaiting() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == 0 {
		r.since, r.quiet = time.Now(), true
	}
	r.waiting++
}

// tripBreaker stops reading: the dependency will not recover within moments.
func (r *retrier) tripBreaker() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.breaker != nil && !r.tripped {
		r.tripped = true
		r.breaker.trip()
	}
}

func (r *retrier) countFailure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
}

// recordFailure counts a failure, logs it now and then, and shows it in the status.
func (r *retrier) recordFailure(err error) {
	r.status.addFailure(r, fmt.Errorf("%s: %w", r.name, err))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
	if now := time.Now(); now.Sub(r.logged) >= logInterval {
		r.logged, r.quiet = now, false
		r.log.Warn(r.name+" failed; retrying", "error", err, "failures", r.failures)
	}
}

// stopWaiting ends startWaiting. err is nil if the call succeeded.
func (r *retrier) stopWaiting(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting--
	if r.waiting > 0 {
		return
	}
	r.status.removeFailure(r)
	if r.tripped {
		r.tripped = false
		r.breaker.reset()
	}
	if err == nil && !r.quiet {
		r.log.Info(r.name+" recovered", "after", time.Since(r.since).Round(time.Millisecond))
	}
}

func (r *retrier) failureCount() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

// backoffWait returns how long to wait after an attempt, counted from 0. Half of
// the wait is random, so that lanes do not retry all at once.
func backoffWait(attempt int) time.Duration {
	d := longestWait
	if attempt < 10 {
		d = min(d, firstWait<<attempt)
	}
	return d/2 + rand.N(d/2)
}

// A backoff spaces out an action that may repeat without end. Its waits grow while
// the action repeats quickly.
type backoff struct {
	last    time.Time
	attempt int
}

func (b *backoff) next() time.Duration {
	now := time.Now()
	if now.Sub(b.last) > 2*longestWait {
		b.attempt = 0
	}
	d := backoffWait(b.attempt)
	b.last = now.Add(d)
	b.attempt++
	return d
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// failuresToTrip is the number of failures in a row that trip the circuit breaker.
const failuresToTrip = 3

// A circuitBreaker is open while something that every delivery needs is failing.
// Then nothing is read, because batches could only wait. Its zero value is closed.
type circuitBreaker struct {
	mu     sync.Mutex
	opened int           // number of retriers that tripped it
	closed chan struct{} // closed when opened falls to 0
}

func (b *circuitBreaker) trip() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened == 0 {
		b.closed = make(chan struct{})
	}
	b.opened++
}

func (b *circuitBreaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened--
	if b.opened == 0 {
		close(b.closed)
	}
}

func (b *circuitBreaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened > 0
}

// wait returns when the breaker is closed or ctx ends.
func (b *circuitBreaker) wait(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		open, closed := b.opened > 0, b.closed
		b.mu.Unlock()
		if !open {
			return
		}
		select {
		case <-closed:
		case <-ctx.Done():
		}
	}
}
