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
	what    string
	log     *slog.Logger
	status  *status
	circuit *circuit // broken while the trouble lasts; nil when reading helps to get over it

	mu       sync.Mutex
	waiting  int // lanes that wait for it to pass
	since    time.Time
	said     time.Time
	silent   bool // nothing was said since waiting rose from 0
	broke    bool // the circuit
	failures uint64
}

func (p *Pipeline) newTrouble(what string, c *circuit) *trouble {
	return &trouble{what: what, log: p.log, status: &p.status, circuit: c}
}

func (t *trouble) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == 0 {
		t.since, t.silent = time.Now(), true
	}
	t.waiting++
}

// lasts breaks the circuit: what is wrong will not be over in a moment.
func (t *trouble) lasts() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.circuit != nil && !t.broke {
		t.broke = true
		t.circuit.breakOff()
	}
}

// missed counts an attempt that is repeated at once.
func (t *trouble) missed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures++
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
	if t.broke {
		t.broke = false
		t.circuit.mend()
	}
	if err == nil && !t.silent {
		t.log.Info(t.what+" works again", "after", time.Since(t.since).Round(time.Millisecond))
	}
}

func (t *trouble) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}
