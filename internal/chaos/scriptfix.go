package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"time"

	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// A ScriptFix is a script that fails for some events, and its fixed version, with which
// the dead letters are retried.
type ScriptFix struct {
	Path          string // of the script file
	Broken, Fixed string
}

// WithScript returns the pipeline running the script at a path.
func (p *Pipeline) WithScript(script string) *Pipeline {
	other := *p
	other.pipeline = maps.Clone(p.pipeline)
	other.pipeline["script"] = script
	return &other
}

// retryWithFixedScript fixes the script, retries all dead letters, kills the worker at
// every point meanwhile, and audits the sinks again.
func (s *testbed) retryWithFixedScript(ctx context.Context) (r Report, err error) {
	w := s.workers[0]
	if err := os.WriteFile(s.round.Fix.Path, []byte(s.round.Fix.Fixed), 0o600); err != nil {
		return r, err
	}
	if s.expected, err = s.config.Expect(ctx, w.config, s.config.Events.onePerSample()); err != nil {
		return r, err
	}
	s.logf("the script is fixed, and all dead letters are queued for retry")
	if out, err := exec.CommandContext(ctx, s.config.Binary, "dlq", "retry", "--all", "--data", w.dataFolder()).CombinedOutput(); err != nil {
		return r, fmt.Errorf("retry the dead letters: %w: %s", err, out)
	}
	for _, point := range killPoints(len(s.round.Pipeline.Sinks)) {
		f := Fault{KillAtPoint, point}
		if err := w.start(&f, 1); err != nil {
			return r, err
		}
		if err := s.waitForKill(ctx, w, f); err != nil {
			return r, err
		}
	}
	if err := s.waitRetried(ctx, w); err != nil {
		return r, err
	}
	return s.auditSinks(ctx)
}

// waitRetried runs the worker until no dead letter is queued for retry.
func (s *testbed) waitRetried(ctx context.Context, w *worker) error {
	return waitFor(ctx, "all dead letters were tried again", func() (bool, error) {
		if err := w.start(nil, 0); err != nil {
			return false, err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return false, err
		}
		if err := w.drain(ctx); err != nil {
			return false, err
		}
		store, err := deadletter.Open(w.dataFolder())
		if err != nil {
			return false, err
		}
		queued, err := store.Queued()
		return len(queued) == 0, errors.Join(err, store.Close())
	})
}
