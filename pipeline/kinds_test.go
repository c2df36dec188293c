package pipeline

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

const trim = `
function main(event)
  if event.id % 100 == 0 then error("a hundredth") end
  if event.event_name == "spam" then return nil end
  event.user_agent = nil
  return event
end`

// TestKinds runs real kinds through the pipeline and accounts for each event.
func TestKinds(t *testing.T) {
	const events = 5000
	log, limits := slog.New(slog.DiscardHandler), source.Limits{Events: 100, Bytes: 1 << 20}
	src, err := generate.New(source.Env{Log: log, Limits: limits}, generate.Config{Events: events, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	lua, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "trim.lua", Text: []byte(trim)},
		script.Options{
			Sinks: []script.Sink{{}}, Log: log,
			Limits: script.Limits{EventTime: time.Minute, BatchTime: time.Minute}, // a busy machine is no dead letter
		})
	if err != nil {
		t.Fatal(err)
	}
	defer lua.Close()
	var out bytes.Buffer
	r := newHarness(t, src, lua, stdout.New(&out))
	r.config.Limits = limits
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}

	seen := make([]int, events+1)
	note := func(doc []byte) {
		var e struct{ ID int }
		if err := json.Unmarshal(doc, &e); err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		seen[e.ID]++
	}
	for line := range bytes.Lines(out.Bytes()) {
		note(line)
	}
	dead := r.deadLetters(t)
	for _, l := range dead {
		note(l.Original)
	}
	missing := 0
	for id, n := range seen[1:] {
		if n > 1 {
			t.Errorf("event %d is there %d times", id+1, n)
		}
		missing += 1 - n
	}
	s := r.Stats()
	if uint64(missing) != s.Dropped || len(dead) != events/100 || s.Dead["script"] != events/100 || s.Committed != events {
		t.Errorf("%d neither rows nor dead, %d letters; stats %+v", missing, len(dead), s)
	}
	if s.Dropped == 0 || s.Sinks[0].Rows == 0 || s.Bytes == 0 || s.ScriptTime == 0 || s.Lag != 0 {
		t.Errorf("stats %+v", s)
	}
}
