package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newPausable returns a pipeline that is never exhausted and stores its pause.
func newPausable(t *testing.T, folder string, to *memorySink) harness {
	t.Helper()
	r := newHarness(t, newEndlessSource(newMemoryPartition("a", 0)), testScript{main: passThrough}, to)
	r.config.Folder = folder
	r.Pipeline = New(r.config)
	return r
}

func TestPauseClosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		to.beforeCommit = func(ctx context.Context) error { sleep(ctx, 10*time.Millisecond); return nil }
		r := newPausable(t, t.TempDir(), to)
		ended := r.start(t.Context())
		time.Sleep(time.Second)
		if err := r.Pause("a person said so"); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.OpenPartitions != 1 || s.State != Paused {
			t.Errorf("%d partitions open in state %s", s.OpenPartitions, s.State)
		}
		time.Sleep(time.Minute)
		s := r.Stats()
		if s.OpenPartitions != 0 || s.Read != s.Committed || len(to.allRows()) != int(s.Read) {
			t.Errorf("%d partitions open, %d events read, %d committed", s.OpenPartitions, s.Read, s.Committed)
		}
		if err := r.Ready(); err == nil || err.Error() != "paused: a person said so" {
			t.Errorf("ready: %v", err)
		}
		for range 2 {
			if err := r.Resume(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if again := r.Stats(); again.State != Running || again.Read <= s.Read || r.Paused() != nil {
			t.Errorf("resumed: %+v", again)
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A logSeer calls see for each line of a log.
type logSeer struct {
	slog.Handler
	see func()
}

func (s logSeer) Enabled(context.Context, slog.Level) bool  { return true }
func (s logSeer) Handle(context.Context, slog.Record) error { s.see(); return nil }

func TestPauseSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, to := t.TempDir(), newMemorySink()
		r := newPausable(t, folder, to)
		if err := r.Pause("too hot"); err != nil {
			t.Fatal(err)
		}
		r = newPausable(t, folder, to)
		said := make(chan State, 100)
		r.log = slog.New(logSeer{see: func() { said <- r.Stats().State }})
		ended := r.start(t.Context())
		time.Sleep(time.Minute)
		if state := <-said; state != Paused {
			t.Errorf("where the log says it, the state is %s", state)
		}
		if s := r.Stats(); s.State != Paused || s.Err.Error() != "too hot" || s.Read > 0 {
			t.Errorf("%+v", s)
		}
		r.Drain()
		synctest.Wait()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}

		// By a command, while no engine runs.
		if pause, err := ReadPause(folder, "test"); err != nil || pause.Reason != "too hot" {
			t.Errorf("%+v, %v", pause, err)
		}
		for range 2 {
			if err := WritePause(folder, "test", nil); err != nil {
				t.Fatal(err)
			}
		}
		r = newPausable(t, folder, to)
		ended = r.start(t.Context())
		time.Sleep(time.Second)
		if s := r.Stats(); s.State != Running || s.Read == 0 {
			t.Errorf("%+v", s)
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestPauseCannotBeRead(t *testing.T) {
	r := newPausable(t, t.TempDir(), newMemorySink())
	if err := r.Pause("x"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.config.Folder, "paused", "test.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := newPausable(t, r.config.Folder, newMemorySink()).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "read pause of pipeline test") {
		t.Errorf("ended with %v", err)
	}
}

// The end of ctx stops a paused pipeline at once.
func TestCancelWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPausable(t, t.TempDir(), newMemorySink())
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.start(ctx)
		time.Sleep(time.Second)
		if err := r.Pause("x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}
