package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// A burdened script takes the time of a limit for each heavy event, until the batch's is used
// up: such events die, and the rest of the batch is put back.
type burdened struct {
	heavy   func(doc string) bool
	version atomic.Int64
}

const heavyEvents = 20 // that die before the time of the batch is used up

func (s *burdened) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	res.Reset()
	heavy := 0
	for i := range in.Len() {
		doc := string(in.Doc(i))
		position := in.Range.First + uint64(i)
		if s.heavy(doc) {
			time.Sleep(100 * time.Millisecond)
			res.Dead = append(res.Dead, event.DeadLetter{Position: position, Stage: "script", Error: "time limit", Original: []byte(doc), Script: s.String()})
			heavy++
		} else {
			out := &res.Outputs[0]
			out.Data = append(out.Data, doc...)
			out.Ends = append(out.Ends, uint32(len(out.Data)))
			out.From = append(out.From, uint32(i))
		}
		if res.Ran = i + 1; heavy == heavyEvents && res.Ran < in.Len() {
			return &script.LimitError{Limit: "batch time", Err: &script.Error{Script: "s.lua", Message: "too slow"}}
		}
	}
	return nil
}

func (s *burdened) String() string { return fmt.Sprintf("s.lua %d", s.version.Load()) }
func (*burdened) Close() error     { return nil }

// newBurdened returns a pipeline over n events of one partition, which is never exhausted.
func newBurdened(t *testing.T, folder string, n, batch int, s *burdened, to *memorySink) (harness, *memoryPartition) {
	t.Helper()
	partition := newMemoryPartition("a", n)
	q := newMemorySource(partition)
	q.batch = func() int { return batch }
	q.onOpen = func(context.Context) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		partition.read = 0
		return nil
	}
	q.onRead = func(ctx context.Context) error { // which waits at the end
		q.mu.Lock()
		atEnd := partition.read == uint64(n)
		q.mu.Unlock()
		if atEnd {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	r := newHarness(t, q, testScript{main: passThrough}, to)
	r.config.Script, r.config.Folder = s, folder
	r.Pipeline = New(r.config)
	return r, partition
}

// TestHeavyEventsOfOneSender puts a hundred events that hit a limit before those of others: these
// land, and no person is needed.
func TestHeavyEventsOfOneSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		s := &burdened{heavy: func(doc string) bool { return len(doc) <= len("a/99") }}
		r, partition := newBurdened(t, t.TempDir(), 1000, 100, s, to)
		ended := r.start(t.Context())
		time.Sleep(time.Minute)
		synctest.Wait()
		if stats := r.Stats(); stats.State != Running || r.Paused() != nil {
			t.Errorf("after a minute the pipeline is %s: %v; want it running", stats.State, stats.Err)
		}
		if got := len(to.allRows()); got != 900 || !partition.acked.Covers(0, 1000) {
			t.Errorf("%d rows, acknowledged %v; want 900 rows, and all events acknowledged", got, partition.acked)
		}
		if got := r.Stats().DeadEvents; got != 100 {
			t.Errorf("%d events died, want 100", got)
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// TestPauseForLimits lets nothing pass: the pipeline pauses, and tries batches after growing waits
// until something passes. Every event is delivered or dead, once.
func TestPauseForLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		var blocked atomic.Bool
		blocked.Store(true)
		s := &burdened{heavy: func(string) bool { return blocked.Load() }}
		const events = 2000
		r, partition := newBurdened(t, t.TempDir(), events, 60, s, to)
		ended := r.start(t.Context())
		var waits []time.Duration
		var last *Pause
		for began := time.Now(); len(waits) < 8 && time.Since(began) < 5*time.Hour; time.Sleep(time.Second) {
			if pause := r.Paused(); pause != nil && pause != last {
				last = pause
				waits = append(waits, pause.Next.Sub(pause.Since).Round(2*time.Second))
				if stats := r.Stats(); stats.State != Paused || !strings.Contains(stats.Err.Error(), "s.lua") || !stats.PauseEnds.Equal(*pause.Next) {
					t.Errorf("paused, but the status is %s: %v until %v", stats.State, stats.Err, stats.PauseEnds)
				}
			}
		}
		if got, want := fmt.Sprint(waits), "[10s 20s 40s 1m20s 2m40s 5m20s 10m0s 10m0s]"; got != want {
			t.Errorf("the pauses last %s, want %s", got, want)
		}
		blocked.Store(false)
		time.Sleep(longestPauseWait + time.Minute)
		if stats := r.Stats(); stats.State != Running {
			t.Errorf("the pipeline is %s: %v; want it running", stats.State, stats.Err)
		}
		if pause, err := ReadPause(r.config.Folder, "test"); err != nil || pause != nil {
			t.Errorf("the stored pause is %v, %v; want none", pause, err)
		}
		if got := uint64(len(to.allRows())) + r.Stats().DeadEvents; got != events || !partition.acked.Covers(0, events) {
			t.Errorf("%d events landed or died, acknowledged %v; want %d, each once", got, partition.acked, events)
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// waitForPauses waits for the n-th pause in a row.
func waitForPauses(t *testing.T, r harness, n int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Second) {
		if pause := r.Paused(); pause != nil && pause.Pauses == n {
			return
		}
	}
	t.Fatalf("after an hour the pause is %+v, want the pause %d in a row", r.Paused(), n)
}

// TestPauseForLimitsEnds ends such a pause: by a person, by a new version of the script, and after a
// restart when the wait is over.
func TestPauseForLimitsEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r *harness, s *burdened){
		"resumed":      func(t *testing.T, r *harness, _ *burdened) { _ = r.Resume() },
		"a new script": func(_ *testing.T, _ *harness, s *burdened) { s.version.Add(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := newMemorySink()
				var blocked atomic.Bool
				blocked.Store(true)
				s := &burdened{heavy: func(string) bool { return blocked.Load() }}
				r, _ := newBurdened(t, t.TempDir(), 1000, 60, s, to)
				ended := r.start(t.Context())
				waitForPauses(t, r, 4) // the last is 80 s long
				blocked.Store(false)
				end(t, &r, s)
				time.Sleep(5 * time.Second)
				if stats := r.Stats(); stats.State != Running || len(to.allRows()) == 0 {
					t.Errorf("5 s later the pipeline is %s with %d rows: %v; want it running", stats.State, len(to.allRows()), stats.Err)
				}
				r.Drain()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
	t.Run("restarted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			to, folder := newMemorySink(), t.TempDir()
			var blocked atomic.Bool
			blocked.Store(true)
			s := &burdened{heavy: func(string) bool { return blocked.Load() }}
			r, _ := newBurdened(t, folder, 1000, 60, s, to)
			ended := r.start(t.Context())
			waitForPauses(t, r, 1)
			r.Drain()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			again, _ := newBurdened(t, folder, 1000, 60, s, to)
			ended = again.start(t.Context())
			time.Sleep(time.Second)
			if stats := again.Stats(); stats.State != Paused {
				t.Errorf("after the restart the pipeline is %s, want paused", stats.State)
			}
			blocked.Store(false)
			time.Sleep(time.Minute)
			if stats := again.Stats(); stats.State != Running {
				t.Errorf("a minute later the pipeline is %s: %v; want it running", stats.State, stats.Err)
			}
			again.Drain()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestPauseOfAPersonStays: limits do not turn the pause of a person into one that ends by itself.
func TestPauseOfAPersonStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &burdened{heavy: func(string) bool { return true }}
		r, _ := newBurdened(t, t.TempDir(), 5000, 1000, s, newMemorySink())
		ended := r.start(t.Context())
		time.Sleep(5 * time.Second)
		if err := r.Pause("a person said so"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if pause := r.Paused(); pause == nil || pause.Reason != "a person said so" || pause.Next != nil {
			t.Errorf("the pause is %+v, want the person's", pause)
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
