//go:build cgo && luajit && lmdb

package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/changelog"
	"github.com/perigeedb/perigee/source"
)

// A stateRig is a pipeline with a state between a source and a table in memory. Its home is a
// changelog.
type stateRig struct {
	t       *testing.T
	config  Config
	source  *memorySource // gives all events in one batch
	table   *memorySink
	letters *deadletter.Store
}

// newStateRig returns a pipeline that runs code on events of one partition.
func newStateRig(t *testing.T, code string, docs []string, copies string) *stateRig {
	t.Helper()
	store, err := changelog.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	letters, err := deadletter.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { letters.Close() })
	loaded, err := luajit.Load(t.Context(), script.Code{Name: "s.lua", Text: []byte(code)}, script.Options{
		Sinks: []script.Sink{{Name: "table"}}, Limits: script.Limits{EventTime: 10 * time.Second, Output: 256 << 20}, Extension: lua.ForState(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loaded.Close() })
	home := store.Sink("test", nil)
	r := &stateRig{t: t, source: newMemorySource(&memoryPartition{name: "a", docs: docs}), table: newMemorySink(), letters: letters}
	r.source.batch = func() int { return len(docs) }
	r.config = Config{
		Name: "test", Source: r.source, Script: loaded, DeadLetters: letters, Lanes: 3, Home: 1,
		State: &state.Config{
			Name: "users", Home: home, HomeName: "changelog", Folder: copies, FlushAge: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		},
		Sinks: []Sink{
			{Name: "table", Sink: r.table, Guarantee: sink.ExactlyOnce},
			{Name: "changelog", Sink: home, Guarantee: sink.ExactlyOnce, WithoutRows: true},
		},
		Limits: source.Limits{Events: len(docs), Bytes: 1 << 30}, Log: slog.New(slog.DiscardHandler),
	}
	return r
}

// run runs the pipeline to the end of its source.
func (r *stateRig) run() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	if err := New(r.config).Run(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// deadLetters returns the dead letters.
func (r *stateRig) deadLetters() (all []event.DeadLetter) {
	r.t.Helper()
	for l, err := range r.letters.List(deadletter.Filter{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, event.DeadLetter{Position: l.Position, Stage: l.Stage, Error: l.Error})
	}
	return all
}

// get returns the value of a node as text; "" for none.
func (r *stateRig) get(path nodedb.Path) (value string) {
	r.t.Helper()
	err := r.config.State.View(r.t.Context(), "a", func(tx *nodedb.Tx) error {
		v, err := tx.Get(path)
		value = v.String()
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return value
}

// randomText returns a text that does not compress to less than three quarters.
func randomText(n int) string {
	b := make([]byte, n*3/4)
	rand.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// TestNoteLimit runs a batch whose changes exceed a note many times: it is delivered in several
// notes, none of them larger than the goal.
func TestNoteLimit(t *testing.T) {
	const events = 300
	docs := make([]string, events)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"id":%d,"text":%q}`, i, randomText(100_000))
	}
	r := newStateRig(t, `
		local nodedb = require "nodedb"
		function main(e)
			nodedb.node("^text")[e.id].__ = e.text
			return {id = e.id, n = nodedb.node("^n"):incr()}
		end`, docs, filepath.Join(t.TempDir(), "users"))
	r.run()
	if dead := r.deadLetters(); len(dead) > 0 {
		t.Fatalf("%d dead letters, the first %v; want none", len(dead), &dead[0])
	}
	var want []string
	for i := range docs {
		want = append(want, fmt.Sprintf(`{"id":%d,"n":%d}`, i, i+1))
	}
	if got := r.table.allRows(); !slices.Equal(got, want) {
		t.Errorf("%d rows, %.200q…; want %d in order", len(got), got, len(want))
	}
	units, err := r.config.State.Units(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last := units["a"].Last; last < 6 || last > 100 {
		t.Errorf("the changes of %d MB are in %d notes, want 6 to 100", events/10, last)
	}
}

// TestTooLargeForNote gives the script an event that alone exceeds a note, in the middle of a batch:
// only this one becomes a dead letter, and leaves nothing in the state.
func TestTooLargeForNote(t *testing.T) {
	var docs []string
	for i := range 20 {
		copies := 1
		if i == 7 {
			copies = 500
		}
		docs = append(docs, fmt.Sprintf(`{"id":%d,"copies":%d,"text":%q}`, i, copies, randomText(100_000)))
	}
	r := newStateRig(t, `
		local nodedb = require "nodedb"
		function main(e)
			for i = 1, e.copies do nodedb.node("^text")[e.id][i].__ = e.text .. i end
			return {id = e.id, n = nodedb.node("^n"):incr()}
		end`, docs, filepath.Join(t.TempDir(), "users"))
	r.run()
	dead := r.deadLetters()
	if len(dead) != 1 || dead[0].Position != 7 || dead[0].Stage != "script" || !strings.Contains(dead[0].Error, "than a note of 8 MiB has room for") {
		t.Errorf("the dead letters are %v, want one of position 7 about the note", dead)
	}
	if got := len(r.table.allRows()); got != 19 {
		t.Errorf("%d rows, want 19", got)
	}
	if got := r.get(nodedb.Name("^n")); got != "19" {
		t.Errorf("the state has counted %s events, want 19", got)
	}
	if got := r.get(nodedb.Name("^text").At(7).At(1)); got != "" {
		t.Errorf("the state has %d bytes of the event that is dead", len(got))
	}
}

// TestNoteFit: the number of events that run at once falls below what did not fit, and grows again.
func TestNoteFit(t *testing.T) {
	var f noteFit
	if n := f.limit(1000); n != 1000 {
		t.Errorf("without a note that was too large, %d of 1000 events run at once", n)
	}
	share := func(n int) float64 { return float64(n) / 100 }
	for n := 1000; !f.count(n, share(n)); n = f.limit(n) {
	}
	if n := f.limit(1000); n < 50 || n > 100 {
		t.Errorf("of 100 events that fit, %d run at once", n)
	}
	for range 20 { // events are small again
		f.count(f.limit(1000), 0.01)
	}
	if n := f.limit(1000); n != 1000 {
		t.Errorf("after small events, %d of 1000 run at once", n)
	}
	f = noteFit{}
	f.count(3, 1000)
	if n := f.limit(3); n != 1 {
		t.Errorf("of events that fill ten notes each, %d run at once", n)
	}
}
