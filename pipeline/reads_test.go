//go:build cgo && luajit && lmdb

package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// readingLua adds what the state users has counted to each event.
const readingLua = `
local counts = require("state").open("users").node "^n"
function main(e)
	return {id = e.id, n = counts.__}
end`

func loadReader(t *testing.T) script.Script {
	t.Helper()
	loaded, err := luajit.Load(t.Context(), script.Code{Name: "reads.lua", Text: []byte(readingLua)}, script.Options{
		Sinks: []script.Sink{{Name: "table"}}, Limits: script.Limits{EventTime: 10 * time.Second}, Extension: lua.ForReads("users"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loaded.Close() })
	return loaded
}

// newReader returns a pipeline without a state that reads the one of another.
func newReader(t *testing.T, docs []string, open func() (*StateReader, error)) (*Pipeline, *memorySink) {
	t.Helper()
	letters, err := deadletter.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { letters.Close() })
	table := newMemorySink()
	return New(Config{
		Name: "reader", Source: newMemorySource(&memoryPartition{name: "a", docs: docs}), Script: loadReader(t), DeadLetters: letters, Lanes: 3,
		Sinks:  []Sink{{Name: "table", Sink: table, Guarantee: sink.ExactlyOnce}},
		Reads:  []Read{{"users", open}},
		Limits: source.Limits{Events: 2, Bytes: 1 << 20}, Log: slog.New(slog.DiscardHandler),
	}), table
}

func numbered(n int) (docs []string) {
	for i := range n {
		docs = append(docs, fmt.Sprintf(`{"id":%d}`, i))
	}
	return docs
}

// TestReadState reads the state of a pipeline that has not run yet, and of one that has ended.
func TestReadState(t *testing.T) {
	t.Parallel()
	r := newStateRig(t, `local n = require "nodedb".node "^n"
function main(e) n:incr() return {id = e.id} end`, numbered(7), t.TempDir())
	r.config.State.Shared = true
	owner := New(r.config)
	defer owner.Close()

	early, table := newReader(t, numbered(5), owner.OpenReader)
	run(t, early)
	if rows := table.allRows(); len(rows) != 5 || strings.Contains(strings.Join(rows, ""), `"n"`) {
		t.Errorf("before the other has run, the rows are %v", rows)
	}
	run(t, owner)
	late, table := newReader(t, numbered(5), owner.OpenReader)
	run(t, late)
	if rows := strings.Join(table.allRows(), " "); strings.Count(rows, `"n":7`) != 5 {
		t.Errorf("after the other has ended, the rows are %v", rows)
	}

	owner.Close()
	waiting, table := newReader(t, numbered(1), owner.OpenReader)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- waiting.Run(ctx) }()
	const want = "pipeline test of state users has ended"
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := waiting.Ready()
		if err != nil && strings.Contains(err.Error(), want) {
			break
		}
		if time.Now().After(end) {
			t.Errorf("the reader says %v, want %q", err, want)
			break
		}
	}
	cancel()
	<-ended
	if rows := table.allRows(); len(rows) != 0 {
		t.Errorf("without the state the reader has written %v", rows)
	}
}

func run(t *testing.T, p *Pipeline) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatalf("%v; its status was %v", err, p.Ready())
	}
}

// TestReadStateOfOtherWorker reads the state of a unit that another worker has, through a copy, and
// goes on while that worker is killed and this one takes the unit over.
func TestReadStateOfOtherWorker(t *testing.T) {
	t.Parallel()
	b := newStandbyBed(t, 1)
	b.shared, b.standby = true, 0
	b.start("first", t.TempDir())
	b.eventually("the first has the unit", func() bool { return b.counts()["first"] == 1 })
	b.start("second", t.TempDir())
	second := b.workers["second"].Pipeline
	defer second.Close()

	sc, res := loadReader(t), event.Result{Outputs: make([]event.Output, 1)}
	read := func() (n int64) {
		b.t.Helper()
		b.eventually("the second can read the state", func() bool {
			r, err := second.OpenReader()
			if err != nil {
				return false
			}
			defer r.Close()
			in := &event.Batch{Range: event.Range{Count: 1}, Reads: []event.State{r}}
			in.Append([]byte(`{"id":0}`))
			res.Reset()
			if err := sc.Run(t.Context(), in, &res); err != nil || res.Outputs[0].Len() != 1 {
				t.Fatalf("%d rows, dead %v, %v", res.Outputs[0].Len(), res.Dead, err)
			}
			n = 0
			_, _ = fmt.Sscanf(string(res.Outputs[0].Doc(0)), `{"id":0,"n":%d}`, &n) // no n: nothing was counted
			return true
		})
		return n
	}
	last := int64(0)
	goesOn := func(what string) {
		t.Helper()
		before := last
		b.eventually(what, func() bool {
			n := read()
			if n < last {
				t.Fatalf("%s: read %d after %d", what, n, last)
			}
			last = n
			return n > before+10
		})
	}
	goesOn("the copy follows")
	if b.counts()["first"] != 1 {
		t.Errorf("the owners are %v", b.owners())
	}
	b.stop("first")
	b.eventually("the second takes over", func() bool { return b.counts()["second"] == 1 })
	goesOn("its own unit")
	second.Drain()
	if err := <-b.workers["second"].ended; err != nil {
		t.Error(err)
	}
	b.workers["second"].kill()
	delete(b.workers, "second")
	if n := read(); n < last {
		t.Errorf("after its end the copy has %d, less than %d", n, last)
	}
}
