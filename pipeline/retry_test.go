package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/sink"
)

// Conflicts with other transactions are retried within milliseconds and do not count as
// failures.
func TestConflictsAreRetriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		to.beforeCommit = failFirst(5, fmt.Errorf("insert: %w", sink.ErrConflict))
		r := newHarness(t, newMemorySource(newMemoryPartition("a", 10)), testScript{main: passThrough}, to)
		began := time.Now()
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("five conflicts took %v", took)
		}
		if s := r.Stats(); s.Sinks[0].Retries != 5 || len(to.allRows()) != 10 {
			t.Errorf("%d retries, %d rows", s.Sinks[0].Retries, len(to.allRows()))
		}
	})
}

// The first failure is logged, then one every logInterval, and the recovery with how long it
// took since the first call began to wait. A failure that nobody read of recovers in silence.
func TestFailuresAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := New(Config{Name: "p", Log: slog.New(slog.NewTextHandler(&out, nil))}).newRetrier("sink table", nil)
		logged := func() string {
			defer out.Reset()
			var messages []string
			for line := range strings.Lines(out.String()) {
				_, text, _ := strings.Cut(strings.TrimSpace(line), "msg=")
				messages = append(messages, text)
			}
			return strings.Join(messages, "\n")
		}
		away := errors.New("away")
		for _, step := range []struct {
			wait time.Duration
			do   func()
			want string
		}{
			{0, func() { r.startWaiting(); r.recordFailure(away) }, `"sink table failed; retrying" pipeline=p error=away failures=1`},
			{time.Second, func() { r.startWaiting(); r.recordFailure(away) }, ""},
			{logInterval, func() { r.recordFailure(away) }, `"sink table failed; retrying" pipeline=p error=away failures=3`},
			{time.Second, func() { r.stopWaiting(nil) }, ""},
			{0, func() { r.stopWaiting(nil) }, `"sink table recovered" pipeline=p after=12s`},
			{time.Second, func() { r.startWaiting(); r.recordFailure(away); r.stopWaiting(nil) }, ""},
			{logInterval, func() { r.startWaiting(); r.recordFailure(away) }, `"sink table failed; retrying" pipeline=p error=away failures=5`},
			{0, func() { r.stopWaiting(context.Canceled) }, ""},
		} {
			time.Sleep(step.wait)
			step.do()
			if got := logged(); got != step.want {
				t.Errorf("logged %q, want %q", got, step.want)
			}
		}
	})
}

// Endless conflicts are handled like any other failure.
func TestEndlessConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		to.beforeCommit = func(context.Context) error { return sink.ErrConflict }
		r := newHarness(t, newMemorySource(newMemoryPartition("a", 10)), testScript{main: passThrough}, to)
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.start(ctx)
		time.Sleep(time.Minute)
		if s := r.Stats(); s.State != Retrying || !s.CircuitOpen || s.Sinks[0].Retries > 40 {
			t.Errorf("%+v", s)
		}
		cancel()
		<-ended
	})
}

// While a sink is unreachable, only the batches in flight are read. Once it recovers,
// reading continues.
func TestCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		var back atomic.Bool
		to.beforeCommit = func(context.Context) error {
			if back.Load() {
				return nil
			}
			return errors.New("away")
		}
		a, b := newMemoryPartition("a", 500), newMemoryPartition("b", 5)
		q := newMemorySource(a)
		r := newHarness(t, q, testScript{main: passThrough}, to)
		ended := r.start(t.Context())
		time.Sleep(30 * time.Second)
		q.add(b)
		time.Sleep(30 * time.Second)
		s := r.Stats()
		if !s.CircuitOpen || s.OpenPartitions != 2 || s.Read != 10*(DefaultLanes+1) || b.read != 0 {
			t.Errorf("circuit broken: %v, %d partitions open, %d events read", s.CircuitOpen, s.OpenPartitions, s.Read)
		}
		if s.Sinks[0].Lag != 500 {
			t.Errorf("a lag of %d", s.Sinks[0].Lag)
		}
		back.Store(true)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		s = r.Stats()
		if s.CircuitOpen || s.Committed != 505 || s.Sinks[0].Lag != 0 || s.BackpressureTime == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Waits double from firstWait to longestWait, half of them at random, and stay there however
// often an attempt fails.
func TestBackoffWait(t *testing.T) {
	for attempt, want := range []time.Duration{firstWait, 2 * firstWait, 4 * firstWait, 8 * firstWait, 16 * firstWait, 32 * firstWait, 64 * firstWait,
		longestWait, longestWait, longestWait, longestWait, longestWait} {
		for range 50 {
			if d := backoffWait(attempt); d < want/2 || d >= want {
				t.Errorf("attempt %d waits %v, want %v to %v", attempt, d, want/2, want)
			}
		}
	}
	if d := backoffWait(1000); d < longestWait/2 || d >= longestWait {
		t.Errorf("attempt 1000 waits %v", d)
	}
}

// An action that repeats at once waits longer and longer; after a quiet time it begins with
// short waits again.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b backoff
		for range 2 {
			if d := b.next(); d >= firstWait {
				t.Errorf("the first time waits %v", d)
			}
			for attempt := range 8 {
				time.Sleep(time.Until(b.last) + longestWait)
				d := b.next()
				if want := min(longestWait, 2*firstWait<<attempt); d < want/2 || d >= want {
					t.Errorf("time %d waits %v, want %v to %v", attempt+2, d, want/2, want)
				}
			}
			time.Sleep(time.Until(b.last) + 2*longestWait + 1)
		}
	})
}
