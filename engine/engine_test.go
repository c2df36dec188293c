package engine_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discard is a sink that prints nothing.
func discard() sink.Kind {
	kind := stdout.Kind()
	kind.Name = "discard"
	kind.New = func(_ sink.Env, decode func(any) error) (sink.Sink, error) {
		return stdout.New(discardWriter{}), decode(&struct{}{})
	}
	return kind
}

type discardWriter struct{}

func (discardWriter) Write(p []byte) (int, error) { return len(p), nil }

func options() engine.Options {
	return engine.Options{Kinds: engine.Kinds{
		Sources: []source.Kind{generate.Kind()}, Sinks: []sink.Kind{discard()}, Languages: []script.Language{gopherlua.Language()},
	}}
}

// steady is a pipeline that does not end by itself.
func steady(name string, seed uint64) config.Pipeline {
	return config.Pipeline{
		Name:   name,
		Source: config.Source{Kind: "generate", Settings: generate.Config{Events: 1 << 40, Rate: 100, Seed: seed}},
		Sinks:  []config.Sink{{Kind: "discard"}},
	}
}

func TestLiteralFaults(t *testing.T) {
	c := &config.Config{Data: t.TempDir(), HTTP: "nowhere", Pipelines: []config.Pipeline{
		{Name: "a", Source: config.Source{Kind: "generat"}, Sinks: []config.Sink{{Kind: "discard"}}},
		{Name: "a", Source: config.Source{Kind: "generate", Settings: map[string]any{"events": "many"}}, Sinks: []config.Sink{{Kind: "discard"}}},
		{Name: "b", Source: config.Source{Kind: "generate", Settings: &generate.Config{Events: 1}}, Lanes: -1},
		{Name: "c", Source: config.Source{Kind: "generate", Settings: generate.Config{Events: 1}},
			Script: &config.Script{Text: "function main(event) return"}, Sinks: []config.Sink{{Kind: "discard", Name: "x"}, {Kind: "discard", Name: "x"}}},
		{Name: "d", Source: config.Source{Kind: "generate", Settings: &generate.Config{Events: 1}},
			Sinks: []config.Sink{{Kind: "discard", Settings: map[string]any{"delay": "soon"}}}},
	}}
	if _, err := engine.Open(t.Context(), c, options()); err == nil || !strings.Contains(err.Error(), "unknown source") {
		t.Errorf("Open says %v", err)
	}
	_, err := engine.Assemble(t.Context(), c, options())
	var faults config.Errors
	if !errors.As(err, &faults) {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{
		`configuration: HTTP: invalid address "nowhere"`,
		`configuration: two pipelines have the name "a"`,
		`pipeline a: unknown source "generat"`,
		`pipeline a: events must be a whole number, not "many"`,
		`pipeline b: pipeline b has no sink`,
		`pipeline b: lanes must not be negative`,
		`pipeline c: two sinks have the name "x"`,
		`script of c:1`,
		`pipeline d: unknown key "delay"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no fault %q in:\n%v", want, err)
		}
	}
}

func TestReload(t *testing.T) {
	data := t.TempDir()
	literal := func(all ...config.Pipeline) *config.Config { return &config.Config{Data: data, Pipelines: all} }
	e, err := engine.Open(t.Context(), literal(steady("a", 1), steady("b", 1), steady("c", 1)), options())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Reload(t.Context(), literal(steady("a", 1))); err == nil {
		t.Error("an engine that does not run was reloaded")
	}
	ended := make(chan error)
	go func() { ended <- e.Run(context.Background()) }()
	waitRunning(t, e, 3)

	changes, err := e.Reload(t.Context(), literal(steady("d", 1), steady("a", 1), steady("b", 2)))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]string{"d": changes.Started, "b": changes.Restarted, "c": changes.Stopped, "a": changes.Unchanged} {
		if !slices.Equal(got, []string{name}) {
			t.Errorf("changes are %+v", changes)
		}
	}
	waitRunning(t, e, 3)
	broken := steady("a", 3)
	broken.Sinks = nil
	if _, err := e.Reload(t.Context(), literal(broken)); err == nil || !strings.Contains(err.Error(), "no sink") {
		t.Errorf("a broken configuration: %v", err)
	}
	moved := literal(steady("a", 1))
	moved.Data = t.TempDir()
	if _, err := e.Reload(t.Context(), moved); err == nil || event.HintOf(err) == "" {
		t.Errorf("another data folder: %v", err)
	}
	if names := namesOf(e); !slices.Equal(names, []string{"d", "a", "b"}) {
		t.Errorf("the engine runs %v", names)
	}
	e.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := e.Reload(t.Context(), literal(steady("a", 1))); err == nil {
		t.Error("an engine that has ended was reloaded")
	}
}

func namesOf(e *engine.Engine) (names []string) {
	for _, s := range e.Status() {
		names = append(names, s.Pipeline)
	}
	return names
}

func waitRunning(t *testing.T, e *engine.Engine, pipelines int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		running := 0
		for _, s := range e.Status() {
			if s.State == pipeline.Running && s.Events > 0 {
				running++
			}
		}
		if running == pipelines {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d pipelines run, want %d", running, pipelines)
		}
	}
}

// TestOpenFails holds Open to release everything that it has opened.
func TestOpenFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &config.Config{Data: t.TempDir(), HTTP: l.Addr().String(), Pipelines: []config.Pipeline{steady("a", 1)}}
	if _, err := engine.Open(t.Context(), c, options()); err == nil || !strings.Contains(event.HintOf(err), `set http to another address`) {
		t.Errorf("a port in use: %v", err)
	}
	a, err := engine.Assemble(t.Context(), c, options())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	connections := a.Connect(t.Context(), time.Second)
	if last := connections[len(connections)-1]; last.Part != "http" || last.Err == nil {
		t.Errorf("connecting does not find that the port is in use: %+v", connections)
	}
	c.HTTP = ""
	e, err := engine.Open(t.Context(), c, options())
	if err != nil {
		t.Fatalf("after a failure: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestIsolationWithoutLauncher: a program that does not start script workers says so, and
// does not run the script in its own process.
func TestIsolationWithoutLauncher(t *testing.T) {
	p := steady("a", 1)
	p.Script = &config.Script{Text: "function main(event) return event end", Isolate: config.IsolateProcess}
	_, err := engine.Assemble(t.Context(), &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{p}}, options())
	if err == nil || !strings.Contains(err.Error(), "does not start script workers") || !strings.Contains(event.HintOf(err)+err.Error(), "isolate.Init") {
		t.Errorf("error is %v with hint %q", err, event.HintOf(err))
	}
}

// A countedSink counts in open how many of its kind are open.
type countedSink struct {
	sink.Sink
	open *atomic.Int32
}

func (s countedSink) Close() error {
	s.open.Add(-1)
	return s.Sink.Close()
}

// A refusingService refuses configurations while it is told to.
type refusingService struct{ refuse atomic.Bool }

var errRefused = errors.New("refused")

func (s *refusingService) Configure(*config.Config) error {
	if s.refuse.Load() {
		return errRefused
	}
	return nil
}
func (s *refusingService) Start(engine.Host) error { return nil }
func (s *refusingService) Close() error            { return nil }

// TestRefusedConfigurationIsClosed holds that nothing stays open of a configuration that is
// refused, for what it says itself, for what cannot change, or by a service.
func TestRefusedConfigurationIsClosed(t *testing.T) {
	var open atomic.Int32
	kind := discard()
	create := kind.New
	kind.New = func(env sink.Env, decode func(any) error) (sink.Sink, error) {
		s, err := create(env, decode)
		open.Add(1)
		return countedSink{s, &open}, err
	}
	service := &refusingService{}
	opts := options()
	opts.Kinds.Sinks, opts.Services = []sink.Kind{kind}, []engine.Service{service}
	c := &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{steady("a", 1)}}
	service.refuse.Store(true)
	if _, err := engine.Assemble(t.Context(), c, opts); !errors.Is(err, errRefused) {
		t.Errorf("assembled: %v", err)
	}
	if _, err := engine.Open(t.Context(), c, opts); !errors.Is(err, errRefused) {
		t.Errorf("opened: %v", err)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d sinks are open of a configuration that was refused", n)
	}
	service.refuse.Store(false)
	e, err := engine.Open(t.Context(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ended := make(chan error)
	go func() { ended <- e.Run(context.Background()) }()
	waitRunning(t, e, 1)
	moved, later, broken := *c, *c, *c
	moved.Data = t.TempDir()
	later.Pipelines = []config.Pipeline{steady("a", 1), steady("b", 1)}
	broken.Pipelines = []config.Pipeline{steady("a", 1), {Name: "b", Source: config.Source{Kind: "generat"}, Sinks: []config.Sink{{Kind: "discard"}}}}
	for name, refused := range map[string]*config.Config{"another data folder": &moved, "refused by a service": &later, "with a fault": &broken} {
		service.refuse.Store(refused == &later)
		if _, err := e.Reload(t.Context(), refused); err == nil {
			t.Errorf("%s: reloaded", name)
		}
		if n := open.Load(); n != 1 {
			t.Errorf("%s: %d sinks are open, and one pipeline runs", name, n)
		}
	}
	e.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil || open.Load() != 0 {
		t.Errorf("%d sinks are open after Close, %v", open.Load(), err)
	}
}
