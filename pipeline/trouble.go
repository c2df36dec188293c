package pipeline

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

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
	t.status.failed(t, fmt.Errorf("%s: %w", t.what, err))
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
