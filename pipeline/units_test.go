//go:build cgo && luajit && lmdb

package pipeline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/sink"
)

// A slowHome calls before when a unit is opened.
type slowHome struct {
	sink.UnitStore
	before hook
}

func (h slowHome) OpenUnit(ctx context.Context, name string) (sink.Unit, error) {
	if err := h.before.call(ctx); err != nil {
		return nil, err
	}
	return h.UnitStore.OpenUnit(ctx, name)
}

// retryPartition returns the partition of retries that the table knows, or "".
func (t *memorySink) retryPartition() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.epochs {
		if deadletter.IsRetryBatch(name) {
			return name
		}
	}
	return ""
}

// TestOutputsOfOpenRetries opens a unit that has outputs of a retry which a sink lacks, while the
// session of the retries waits for the unit. The session's own writer takes them: another one would
// fence it.
func TestOutputsOfOpenRetries(t *testing.T) {
	r := newStateRig(t, `function main(e) error "no" end`, []string{`{"id":1}`, `{"id":2}`}, t.TempDir())
	r.run()
	if n, err := r.letters.Retry(deadletter.Filter{}); err != nil || n.Queued != 2 {
		t.Fatalf("%+v retries were asked for, want 2 (%v)", n, err)
	}
	healed, err := luajit.Load(t.Context(), script.Code{Name: "s.lua", Text: []byte(`
local counts = require "nodedb".node "^counts"
function main(e) return {id = e.id, n = counts.all:incr()} end`)}, script.Options{Sinks: []script.Sink{{Name: "table"}}, Extension: lua.ForState()})
	if err != nil {
		t.Fatal(err)
	}
	defer healed.Close()
	r.config.Script, r.config.Limits.Events = healed, 1

	// The home commits the note of the first retry, and the table never gets its row.
	ctx, cancel := context.WithCancel(t.Context())
	r.table.beforeCommit = func(context.Context) error {
		cancel()
		return errors.New("away")
	}
	if err := New(r.config).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the pipeline ended with %v, want canceled", err)
	}
	r.table.beforeCommit = nil
	partition := r.table.retryPartition()
	before := r.table.opened(partition)

	home := r.config.State.Home
	var p *Pipeline
	r.config.State.Home = slowHome{home, func(ctx context.Context) error {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if s := p.units.borrowSession(partition); s != nil {
				s.borrowed.Done()
				return nil
			}
		}
		return errors.New("no session of the retries")
	}}
	p = New(r.config)
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if rows := r.table.allRows(); len(rows) != 2 || r.get(nodedb.Name("^counts").At("all")) != "2" {
		t.Errorf("the table has %v, and the state has counted %s", rows, r.get(nodedb.Name("^counts").At("all")))
	}
	if opened := r.table.opened(partition) - before; opened != 1 {
		t.Errorf("the partition of the retries was opened %d times, want once", opened)
	}
}
