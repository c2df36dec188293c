package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

// A rowSet counts the rows of a sink.
type rowSet struct {
	mu   sync.Mutex
	rows map[string]int
}

func (r *rowSet) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		r.rows[strings.TrimSpace(line)]++
	}
	return len(p), nil
}

// A shadowTest is a pipeline with a shadow, whose script returns the number of each event and "live".
type shadowTest struct {
	*engine.Engine
	t      *testing.T
	folder string
	config *config.Config
	opts   engine.Options
	rows   rowSet
	log    *lockedBuffer
	ended  chan error
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

const (
	liveScript  = `function main(event) return {id = event.id, by = "live"} end`
	otherScript = `function main(event) return {id = event.id, by = "next"} end`
)

// newShadowTest opens an engine with a pipeline "a" whose shadow runs next on all events. 0 events are
// without end.
func newShadowTest(t *testing.T, next string, events uint64) *shadowTest {
	t.Helper()
	s := &shadowTest{t: t, folder: t.TempDir(), rows: rowSet{rows: map[string]int{}}, log: &lockedBuffer{}, ended: make(chan error, 1)}
	s.write("live.lua", liveScript)
	if next != "" {
		s.write("next.lua", next)
	}
	rows := stdout.Kind()
	rows.Name = "rows"
	rows.New = func(_ sink.Env, decode func(any) error) (sink.Sink, error) {
		return stdout.New(&s.rows), decode(&struct{}{})
	}
	if events == 0 {
		events = 1 << 40
	}
	s.opts = engine.Options{
		Kinds: engine.Kinds{Sources: []source.Kind{generate.Kind()}, Sinks: []sink.Kind{rows}, Languages: []script.Language{lua.Language()}},
		Log:   slog.New(slog.NewTextHandler(io.MultiWriter(s.log, t.Output()), nil)),
	}
	s.config = &config.Config{Folder: s.folder, Data: filepath.Join(s.folder, "data"), Reload: time.Second, Pipelines: []config.Pipeline{{
		Name:   "a",
		Source: config.Source{Kind: "generate", Settings: generate.Config{Events: events, Rate: 10_000}},
		Script: &config.Script{Text: "live.lua", Limits: config.Limits{EventTime: 150 * time.Millisecond, BatchTime: 300 * time.Millisecond, Memory: 8 << 20}},
		Shadow: &config.Shadow{Text: "next.lua", Sample: 1},
		Batch:  config.Batch{Events: 100},
		Sinks:  []config.Sink{{Kind: "rows"}},
	}}}
	return s
}

func (s *shadowTest) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.folder, name)
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shadowTest) start() {
	s.t.Helper()
	e, err := engine.Open(s.t.Context(), s.config, s.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Engine = e
	s.t.Cleanup(func() {
		if err := e.Close(); err != nil {
			s.t.Error(err)
		}
	})
	go func() { s.ended <- e.Run(context.Background()) }()
}

// end drains the engine and holds the sink to one row for each event, of the live version or of those that
// were promoted.
func (s *shadowTest) end(by ...string) (rows map[string]int) {
	s.t.Helper()
	s.Drain()
	if err := <-s.ended; err != nil {
		s.t.Fatal(err)
	}
	status := s.Status()[0]
	if status.Dead > 0 || status.Dropped > 0 {
		s.t.Errorf("the pipeline has %d dead letters and dropped %d events", status.Dead, status.Dropped)
	}
	rows = map[string]int{}
	for id := uint64(1); id <= status.Events; id++ {
		found := 0
		for _, version := range by {
			n := s.rows.rows[fmt.Sprintf(`{"by":%q,"id":%d}`, version, id)] + s.rows.rows[fmt.Sprintf(`{"id":%d,"by":%q}`, id, version)]
			found, rows[version] = found+n, rows[version]+n
		}
		if found != 1 {
			s.t.Fatalf("event %d has %d rows", id, found)
		}
	}
	if len(s.rows.rows) != int(status.Events) || status.Events == 0 {
		s.t.Errorf("%d events have %d rows", status.Events, len(s.rows.rows))
	}
	return rows
}

func (s *shadowTest) shadow() admin.ShadowReport {
	s.t.Helper()
	report, err := s.Admin().Shadow(s.t.Context(), "a", false)
	if err != nil {
		s.t.Fatal(err)
	}
	return report
}

// wait waits until the shadow is as wanted.
func (s *shadowTest) wait(what string, is func(*admin.ShadowReport) bool) admin.ShadowReport {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		report := s.shadow()
		if is(&report) {
			return report
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the shadow never %s: %+v", what, report)
		}
	}
}

func (s *shadowTest) waitState(state admin.ShadowState) admin.ShadowReport {
	s.t.Helper()
	return s.wait("is "+string(state), func(r *admin.ShadowReport) bool { return r.State == state })
}

// TestShadowDiffers reports the differences of a new version, whose log lines are marked and whose
// measurements are dropped, and begins a new report with the next one.
func TestShadowDiffers(t *testing.T) {
	s := newShadowTest(t, `
local log, stats = require "log", require "stats"
function main(event)
  if event.id < 10 then log.warn("from the new version") end
  stats.count("shadowed")
  return {id = event.id, by = "live", more = event.id % 2 == 0 and 1 or nil}
end`, 0)
	s.start()
	r := s.wait("compared", func(r *admin.ShadowReport) bool { return r.Events >= 1000 })
	if r.State != admin.ShadowRunning || r.Report.Events < 1000 || r.Different*2 < r.Events-100 || r.Different*2 > r.Events+100 {
		t.Errorf("%+v", r)
	}
	if g := r.Report.Groups; len(g) != 1 || g[0].Title() != "`more` added" {
		t.Errorf("the groups are %+v", g)
	}
	if v := r.Report.Versions; !strings.HasPrefix(v[0].Name, filepath.Join(s.folder, "live.lua@")) || !strings.HasPrefix(v[1].Name, filepath.Join(s.folder, "next.lua@")) || v[0].Rows != v[1].Rows || v[0].Rows == 0 {
		t.Errorf("the versions are %+v", v)
	}
	if log := s.log.String(); !strings.Contains(log, "shadow=true script=") {
		t.Error("the log lines of the shadow are not marked")
	}
	s.write("next.lua", `function main(event) return {id = event.id, by = "live"} end`)
	s.CheckScripts()
	r = s.wait("has run the next version", func(r *admin.ShadowReport) bool { return r.Different == 0 && r.Events >= 1000 })
	if len(r.Report.Groups) > 0 {
		t.Errorf("the new report has %+v", r.Report.Groups)
	}
	if _, err := s.Admin().Shadow(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	s.end("live")
}

// TestShadowStops lets new versions fail in every way: the pipeline does not notice, and the shadow stops
// until its code changes.
func TestShadowStops(t *testing.T) {
	for name, c := range map[string]struct{ next, reason string }{
		"error":  {`function main(event) error("no") end`, "no"},
		"loop":   {`function main(event) while true do end end`, "limit"},
		"memory": {`function main(event) local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(100000) .. i end end`, "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShadowTest(t, c.next, 0)
			s.start()
			r := s.waitState(admin.ShadowStopped)
			if !strings.HasPrefix(r.Reason, "the new version fails on most events: ") || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("the reason is %q", r.Reason)
			}
			if status, err := s.Admin().Status(t.Context()); err != nil || status[0].Shadow == nil || status[0].Shadow.State != admin.ShadowStopped {
				t.Errorf("the status is %+v, %v", status, err)
			}
			if _, err := s.Admin().Promote(t.Context(), "a", false); err == nil || !strings.Contains(err.Error(), "pipeline a: the shadow has stopped: the new version fails") {
				t.Errorf("promoting says %v", err)
			}
			s.write("next.lua", liveScript)
			s.CheckScripts()
			s.wait("runs again", func(r *admin.ShadowReport) bool {
				return r.State == admin.ShadowRunning && r.Events > 100 && r.Different == 0
			})
			s.end("live")
			if !strings.Contains(s.log.String(), "shadow stopped; the pipeline runs without it") {
				t.Error("the log does not say that the shadow stopped")
			}
		})
	}
}

// TestShadowSlow skips the events for which a slow version has no time, and does not delay the pipeline.
func TestShadowSlow(t *testing.T) {
	s := newShadowTest(t, `function main(event) local n = 0 for i = 1, 1e6 do n = n + i % 7 end return {id = event.id, by = "live"} end`, 20_000)
	s.config.Pipelines[0].Script.Limits = config.Limits{EventTime: time.Minute, BatchTime: time.Minute}
	began := time.Now()
	s.start()
	s.wait("skipped", func(r *admin.ShadowReport) bool { return r.Skipped > 1000 })
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second { // at the rate of the source: 2 s
		t.Errorf("the pipeline took %v", took)
	}
	s.ended <- nil
	s.end("live")
	if r := s.shadow(); r.State != admin.ShadowRunning || r.Different > 0 {
		t.Errorf("the shadow is %+v", r)
	}
}

// TestShadowDoesNotLoad starts the pipeline without a shadow that does not load, which a check refuses, and
// starts the shadow once it does.
func TestShadowDoesNotLoad(t *testing.T) {
	for name, c := range map[string]struct{ next, fault string }{
		"missing": {"", "no such file"},
		"syntax":  {"function main(event)", "next.lua:1"},
		"loop":    {"while true do end", "time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShadowTest(t, c.next, 0)
			if _, err := engine.Assemble(t.Context(), s.config, s.opts); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("a check says %v", err)
			}
			s.start()
			waitRunning(t, s.Engine, 1)
			if r := s.shadow(); r.State != admin.ShadowFailed || !strings.Contains(r.Reason, c.fault) || r.Report != nil {
				t.Errorf("the shadow is %+v", r)
			}
			if _, err := s.Admin().Promote(t.Context(), "a", true); err == nil || !strings.Contains(err.Error(), "the shadow does not load") {
				t.Errorf("promoting says %v", err)
			}
			if _, err := s.Admin().Shadow(t.Context(), "a", true); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("a reset says %v", err)
			}
			s.write("next.lua", otherScript)
			s.wait("runs", func(r *admin.ShadowReport) bool { return r.State == admin.ShadowRunning && r.Different > 0 })
			s.end("live")
		})
	}
}

// TestPromote promotes under load: each event has one row, of one of the versions. The file of the new
// version is followed from then on, and a restart runs the script of the configuration.
func TestPromote(t *testing.T) {
	s := newShadowTest(t, otherScript, 0)
	s.start()
	s.wait("compared", func(r *admin.ShadowReport) bool { return r.Different > 1000 })
	s.write("next.lua", `function main(event) return {id = event.id, by = "last"} end`) // the shadow does not run it yet
	done, err := s.Admin().Promote(t.Context(), "a", false)
	if err != nil {
		t.Fatal(err)
	}
	if want := (admin.Promotion{Pipeline: "a", Script: filepath.Join(s.folder, "next.lua"), Before: filepath.Join(s.folder, "live.lua")}); done != want {
		t.Errorf("promoted %+v, want %+v", done, want)
	}
	events := s.Status()[0].Events
	for deadline := time.Now().Add(time.Minute); s.Status()[0].Events < events+2000 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	r := s.shadow()
	if r.State != admin.ShadowPromoted || r.Report == nil || r.Different == 0 {
		t.Errorf("the shadow is %+v", r)
	}
	for _, again := range []func() error{
		func() error { _, err := s.Admin().Promote(t.Context(), "a", true); return err },
		func() error { _, err := s.Admin().Shadow(t.Context(), "a", true); return err },
	} {
		if err := again(); err == nil || !strings.Contains(err.Error(), "the shadow is promoted") {
			t.Errorf("the error is %v", err)
		}
	}
	s.CheckScripts()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.log.String(), "before="+filepath.Join(s.folder, "next.lua@")); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file of the promoted version is not followed")
		}
	}
	events = s.Status()[0].Events
	for deadline := time.Now().Add(time.Minute); s.Status()[0].Events < events+2000 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	rows := s.end("live", "next", "last")
	if rows["live"] == 0 || rows["next"] == 0 || rows["last"] == 0 {
		t.Errorf("the versions have rows %v", rows)
	}
}

// TestPromoteStopped promotes a version that fails only with force.
func TestPromoteStopped(t *testing.T) {
	s := newShadowTest(t, `function main(event) error("no") end`, 0)
	s.start()
	s.waitState(admin.ShadowStopped)
	if _, err := s.Admin().Promote(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	dead := func() uint64 { return s.Status()[0].Dead }
	for deadline := time.Now().Add(time.Minute); dead() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the version was not promoted")
		}
	}
	s.Drain()
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
}

// TestPromoteWhileReloading promotes while configurations replace the pipeline.
func TestPromoteWhileReloading(t *testing.T) {
	s := newShadowTest(t, otherScript, 0)
	s.start()
	waitRunning(t, s.Engine, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			_, _ = s.Admin().Promote(context.Background(), "a", true) // the pipeline may be stopping
			time.Sleep(time.Millisecond)
		}
	}()
	for i := range 10 {
		c := *s.config
		c.Pipelines = append([]config.Pipeline{}, c.Pipelines...)
		c.Pipelines[0].Lanes = 1 + i%2
		if _, err := s.Reload(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	s.Drain()
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
}

// TestShadowClock gives both versions one time in columns that hold it.
func TestShadowClock(t *testing.T) {
	s := newShadowTest(t, liveScript, 2000)
	s.config.Pipelines[0].Computed = []config.Computed{
		{Name: "at", Type: "timestamp", Func: "make://timestamp"}, {Name: "key", Type: "string", Func: "make://identifier"},
	}
	s.start()
	s.wait("compared", func(r *admin.ShadowReport) bool { return r.Events+r.Skipped >= 2000 })
	if r := s.shadow(); r.Different > 0 || r.Events == 0 {
		t.Errorf("%+v\n%+v", r, r.Report.Groups)
	}
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
}

// TestShadowSamples runs on about the share of events that the configuration names.
func TestShadowSamples(t *testing.T) {
	s := newShadowTest(t, liveScript, 10_000)
	s.config.Pipelines[0].Shadow.Sample = 0.1
	s.start()
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
	s.wait("sampled", func(r *admin.ShadowReport) bool { n := r.Events + r.Skipped; return n > 900 && n < 1100 })
}
