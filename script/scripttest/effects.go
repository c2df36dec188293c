package scripttest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/script"
)

// A buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const talkative = `
local log = require "log"
log.warning("at load")
function main(event)
  log.debug("quiet")
  log.info("one " .. event.n)
  log.warn("two", event.n, nil, true)
  log.error(event.n)
  print("printed", event.n)
  if event.flood then for i = 1, 100000 do log.info("flood") end end
  return event
end`

func testLog(t *testing.T, lang script.Language) {
	var out buffer
	opts := withModules(script.Limits{})
	opts.Log = slog.New(slog.NewTextHandler(&out, nil))
	s := load(t, lang, talkative, opts)
	run(t, s, `{"n":7}`)
	for _, part := range []string{
		`level=WARN msg="at load"`, "at=case.lua:3", `level=INFO msg="one 7"`, "at=case.lua:6", `level=WARN msg="two\t7\tnil\ttrue"`,
		"at=case.lua:7", "level=ERROR msg=7", "at=case.lua:8", `level=INFO msg="printed\t7"`, "at=case.lua:9", "script=case.lua@",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the log lacks %s", part)
		}
	}
	if strings.Contains(out.String(), "quiet") {
		t.Error("the log has lines below its level")
	}
	run(t, s, `{"n":8,"flood":true}`)
	if lines := strings.Count(out.String(), "\n"); lines > 1000 {
		t.Errorf("a flood of lines came through: %d", lines)
	}
	if t.Failed() {
		t.Log(out.String()[:min(len(out.String()), 4000)])
	}
}

const measured = `
local stats = require "stats"
function main(event)
  stats.count("events")
  stats.count("bytes", event.n)
  stats.counter("by_kind", 1, {kind = event.kind, site = "a"})
  stats.count("tagged", 2, {"tag1:value1", "tag2:value2"})
  stats.gauge("last", event.n)
  stats.histogram("sizes", event.n)
  return event
end`

func testStats(t *testing.T, lang script.Language) {
	opts := withModules(script.Limits{})
	s := load(t, lang, measured, opts)
	run(t, s, `{"n":1,"kind":"x"}`, `{"n":20,"kind":"y"}`)
	run(t, s, `{"n":300,"kind":"x"}`)
	stats, refused := opts.Stats.Snapshot()
	var got []string
	for _, stat := range stats {
		got = append(got, fmt.Sprintf("%v %s %v %g %d", stat.Kind, stat.Name, stat.Labels, stat.Value, stat.Count))
	}
	want := []string{
		"counter by_kind [{kind x} {site a}] 2 0",
		"counter by_kind [{kind y} {site a}] 1 0",
		"counter bytes [] 321 0",
		"counter events [] 3 0",
		"gauge last [] 300 0",
		"histogram sizes [] 321 3",
		"counter tagged [{tag1 value1} {tag2 value2}] 6 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%d refused (-want +got):\n%s", refused, diff)
	}
}
