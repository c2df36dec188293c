//go:build cgo && luajit && lmdb

package pipeline

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
)

// eventTimeLua sets a timer 100 s after the first event of a key.
const eventTimeLua = `
	local timers = require "timer"
	function main(e)
		if not timers.due(e.key) then timers.at(e.at + 100, e.key) end
		return {key = e.key, at = e.at}
	end
	function timer(key, due) return {key = key, due = due} end`

// TestEventTime lets two partitions share a unit whose clock follows their times: a timer waits for
// the slower one, or until that is idle. The clock goes on after a restart.
func TestEventTime(t *testing.T) {
	doc := func(key string, at int) string { return fmt.Sprintf(`{"key":%q,"at":%d}`, key, at) }
	r := newStateRig(t, eventTimeLua, []string{doc("a", 1000), doc("a", 1200)}, filepath.Join(t.TempDir(), "users"))
	slow := &memoryPartition{name: "b", docs: []string{doc("b", 1000), doc("b", 1050)}}
	r.source.add(slow)
	r.config.Source = growingSource{r.source}
	r.config.State.Shared = true
	r.config.State.EventTime = &state.EventTime{Field: []string{"at"}, Unit: event.Seconds, Lateness: 10 * time.Second, Idle: time.Hour}
	due := func() (timers []string) {
		for _, row := range r.table.allRows() {
			var timer struct {
				Key string
				Due float64
			}
			if err := json.Unmarshal([]byte(row), &timer); err != nil {
				t.Fatal(err)
			}
			if timer.Due > 0 {
				timers = append(timers, fmt.Sprint(timer.Key, timer.Due))
			}
		}
		return timers
	}
	run := func(until func() bool) {
		t.Helper()
		p, ended := New(r.config), make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		for end := time.Now().Add(20 * time.Second); !until(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the rows are %q", r.table.allRows())
			}
		}
		time.Sleep(300 * time.Millisecond) // no more comes
		p.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	run(func() bool { return len(r.table.allRows()) == 4 })
	if got := due(); len(got) > 0 {
		t.Errorf("the timers %v have run while partition b is at 1050", got)
	}
	r.source.mu.Lock()
	slow.docs = append(slow.docs, doc("b", 1120)) // the clock stays at that of the last run: a has no event yet
	r.source.mu.Unlock()
	run(func() bool { return len(r.table.allRows()) == 5 })
	if got := due(); len(got) > 0 {
		t.Errorf("the timers %v have run while nothing is known of partition a", got)
	}
	r.config.State.EventTime.Idle = 100 * time.Millisecond // all partitions are: the greatest time counts
	r.source.mu.Lock()
	slow.docs = append(slow.docs, doc("b", 1150))
	r.source.mu.Unlock()
	run(func() bool { return len(due()) == 2 })
	if got := fmt.Sprint(due()); got != "[a1100 b1100]" {
		t.Errorf("the timers %v have run, want a and b at 1100", got)
	}
}
