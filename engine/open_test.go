package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/file"
)

// A recordedService records what is done with it.
type recordedService struct {
	calls                      []string
	configure, start, closeErr error
}

func (s *recordedService) Configure(*config.Config) error {
	s.calls = append(s.calls, "configure")
	return s.configure
}

func (s *recordedService) Start(engine.Host) error {
	s.calls = append(s.calls, "start")
	return s.start
}

func (s *recordedService) Close() error {
	s.calls = append(s.calls, "close")
	return s.closeErr
}

// TestOpenFailsAtEachStep: whatever Open cannot do, its error says so, nothing stays open, and
// the next Open in the folder works.
func TestOpenFailsAtEachStep(t *testing.T) {
	damage := func(name string) func(t *testing.T, data string) func() {
		return func(t *testing.T, data string) func() {
			path := filepath.Join(data, name)
			if err := os.WriteFile(path, []byte(strings.Repeat("damaged ", 4096)), 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { os.Remove(path) }
		}
	}
	folder := func(name string) func(t *testing.T, data string) func() {
		return func(t *testing.T, data string) func() {
			path := filepath.Join(data, name)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			return func() { os.Remove(path) }
		}
	}
	for _, test := range []struct {
		name    string
		disturb func(t *testing.T, data string) (end func())
		service recordedService
		want    string
		calls   []string // of the service
	}{
		{"the folder is in use", func(t *testing.T, data string) func() {
			lock, err := datafolder.Lock(data)
			if err != nil {
				t.Fatal(err)
			}
			return func() { lock.Close() }
		}, recordedService{}, "is in use by process", nil},
		{"the worker's name", folder("worker"), recordedService{}, "name this worker", nil},
		{"the dead letters", damage(deadletter.FileName), recordedService{}, "open the dead letters", nil},
		{"a service refuses", nil, recordedService{configure: errRefused}, "refused", []string{"configure"}},
		{"a service does not start", nil, recordedService{start: errRefused}, "refused", []string{"configure", "start", "close"}},
		{"the outbox", damage(outbox.FileName), recordedService{}, "open the outbox", []string{"configure", "start", "close"}},
		{"the names of the pipelines", folder("pipelines"), recordedService{}, "store the names of pipelines", []string{"configure", "start", "close"}},
		{"the socket", func(t *testing.T, data string) func() {
			path := filepath.Join(data, datafolder.SocketName)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { os.Remove(path) }
		}, recordedService{}, datafolder.SocketName, []string{"configure", "start", "close"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := t.TempDir()
			var open atomic.Int32
			opts := countedOptions(&open)
			end := func() {}
			if test.disturb != nil {
				end = test.disturb(t, data)
			}
			opts.Services = []engine.Service{&test.service}
			c := &config.Config{Data: data, Pipelines: []config.Pipeline{steady("a", 1)}}
			leaktest.Closed(t, data, func() {
				e, err := engine.Open(t.Context(), c, opts)
				if err == nil {
					e.Close()
				}
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error is %v, want %q", err, test.want)
				}
			})
			if n := open.Load(); n != 0 || !slices.Equal(test.service.calls, test.calls) {
				t.Errorf("%d sinks are open; the service was told to %v, want %v", n, test.service.calls, test.calls)
			}
			end()
			opts.Services = nil
			e, err := engine.Open(t.Context(), c, opts)
			if err != nil {
				t.Fatalf("after the failure: %v", err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// countedOptions are options whose sinks are counted while they are open.
func countedOptions(open *atomic.Int32) engine.Options {
	kind := discard()
	create := kind.New
	kind.New = func(env sink.Env, decode func(any) error) (sink.Sink, error) {
		s, err := create(env, decode)
		open.Add(1)
		return countedSink{s, open}, err
	}
	opts := options()
	opts.Kinds.Sinks = []sink.Kind{kind}
	return opts
}

// A failingSink cannot be closed.
type failingSink struct{ sink.Sink }

func (failingSink) Close() error { return errors.New("the sink was not closed") }

// TestCloseReportsAll: a part that cannot be closed hides neither another one's error nor stops
// what else is to be closed.
func TestCloseReportsAll(t *testing.T) {
	opts := options()
	opts.Kinds.Sinks[0].New = func(env sink.Env, decode func(any) error) (sink.Sink, error) {
		s, err := discard().New(env, decode)
		return failingSink{s}, err
	}
	service := &recordedService{closeErr: errors.New("the service was not closed")}
	opts.Services = []engine.Service{service}
	c := &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{steady("a", 1)}}
	leaktest.Closed(t, c.Data, func() {
		e, err := engine.Open(t.Context(), c, opts)
		if err != nil {
			t.Fatal(err)
		}
		err = e.Close()
		for _, want := range []string{"the sink was not closed", "the service was not closed"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Close says %v, not %q", err, want)
			}
		}
		if err := e.Close(); err != nil || !slices.Equal(service.calls, []string{"configure", "start", "close"}) {
			t.Errorf("closing again: %v, %v", err, service.calls)
		}
	})
	a, err := engine.Assemble(t.Context(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} { // the parts are closed once
		if err := a.Close(); (err != nil) != want {
			t.Errorf("closing an assembly: %v", err)
		}
	}
}

// TestReloadKeepsWhatIsFixed: a setting that only a restart can change is refused by name.
func TestReloadKeepsWhatIsFixed(t *testing.T) {
	c := config.Config{Data: t.TempDir(), Query: config.Query{Listen: "127.0.0.1:0", Token: "secret"}, Pipelines: []config.Pipeline{steady("a", 1)}}
	e, err := engine.Open(t.Context(), &c, options())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ended := make(chan error)
	go func() { ended <- e.Run(context.Background()) }()
	waitRunning(t, e, 1)
	for name, change := range map[string]func(*config.Config){
		"data":  func(c *config.Config) { c.Data = t.TempDir() },
		"http":  func(c *config.Config) { c.HTTP = "127.0.0.1:0" },
		"query": func(c *config.Config) { c.Query.Listen = "127.0.0.1:1" },
		"token": func(c *config.Config) { c.Query.Token = "other" },
		"time":  func(c *config.Config) { c.Query.Time = time.Hour },
		"slow":  func(c *config.Config) { c.Query.Slow = time.Hour },
	} {
		changed := c
		change(&changed)
		_, err := e.Reload(t.Context(), &changed)
		if err == nil || !strings.Contains(err.Error(), "which a running engine cannot apply") || event.HintOf(err) == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.Reload(t.Context(), &c); err != nil {
		t.Errorf("the same configuration: %v", err)
	}
	e.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Run was called before") {
		t.Errorf("running again: %v", err)
	}
}

// TestReloadIsCutShort: pipelines that drain too long for the caller stay stopped, and those
// that were to take their place are closed.
func TestReloadIsCutShort(t *testing.T) {
	var open atomic.Int32
	opts := countedOptions(&open)
	c := &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{steady("a", 1)}}
	e, err := engine.Open(t.Context(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- e.Run(context.Background()) }()
	waitRunning(t, e, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changed := *c
	changed.Pipelines = []config.Pipeline{steady("b", 1), steady("a", 2)}
	_, err = e.Reload(ctx, &changed)
	if err != nil {
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "pipeline a was still draining") {
			t.Errorf("reload: %v", err)
		}
		if names := namesOf(e); !slices.Equal(names, []string{"a"}) || open.Load() != 1 {
			t.Errorf("the engine has %v with %d sinks open", names, open.Load())
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

// TestFailedPipeline: a pipeline that fails does not stop the others, and Run says why it
// failed.
func TestFailedPipeline(t *testing.T) {
	opts := options()
	failing := discard()
	failing.Name = "failing"
	failing.New = func(env sink.Env, decode func(any) error) (sink.Sink, error) {
		s, err := discard().New(env, decode)
		return refusingSink{s}, err
	}
	opts.Kinds.Sinks = append(opts.Kinds.Sinks, failing)
	opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	broken := steady("broken", 1)
	broken.Sinks = []config.Sink{{Kind: "failing"}}
	e, err := engine.Open(t.Context(), &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{broken, steady("a", 1)}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ended := make(chan error)
	go func() { ended <- e.Run(context.Background()) }()
	waitRunning(t, e, 1)
	e.Drain()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "pipeline broken") || strings.Contains(err.Error(), "pipeline a") {
		t.Errorf("Run says %v", err)
	}
}

// A refusingSink can never be opened.
type refusingSink struct{ sink.Sink }

func (refusingSink) Open(context.Context, string) (sink.Writer, event.Ranges, error) {
	return nil, nil, &event.PermanentError{Err: errors.New("no table")}
}

// TestDefaultAddress: a default that another program has is a warning, and an address that the
// configuration names is an error.
func TestDefaultAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, c := range []struct {
		about, configured, byDefault string
		opens, serves, warns         bool
	}{
		{"none", "", "", true, false, false},
		{"a free default", "", "127.0.0.1:0", true, true, false},
		{"a default that is taken", "", taken, true, false, true},
		{"off, with a default that is taken", config.HTTPOff, taken, true, false, false},
		{"a free address, with a default that is taken", "127.0.0.1:0", taken, true, true, false},
		{"an address that is taken", taken, "127.0.0.1:0", false, false, false},
	} {
		var log bytes.Buffer
		opts := options()
		opts.HTTP, opts.Log = c.byDefault, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		e, err := engine.Open(t.Context(), &config.Config{Data: t.TempDir(), HTTP: c.configured, Pipelines: []config.Pipeline{steady("a", 1)}}, opts)
		if (err == nil) != c.opens {
			t.Errorf("%s: Open returned %v, want it to open: %v", c.about, err, c.opens)
		}
		if err != nil {
			continue
		}
		if got := e.Address() != ""; got != c.serves {
			t.Errorf("%s: the address is %q, want one: %v", c.about, e.Address(), c.serves)
		}
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", c.about, err)
		}
		if got := strings.Contains(log.String(), "running without http"); got != c.warns {
			t.Errorf("%s: the log is %q, want a warning: %v", c.about, &log, c.warns)
		}
	}
}

// TestAddress: the port that the system chose is named, none is "".
func TestAddress(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:0": true, "": false} {
		e, err := engine.Open(t.Context(), &config.Config{Data: t.TempDir(), HTTP: address, Pipelines: []config.Pipeline{steady("a", 1)}}, options())
		if err != nil {
			t.Fatal(err)
		}
		if _, port, err := net.SplitHostPort(e.Address()); (err == nil && port != "0") != want {
			t.Errorf("%q is %q", address, e.Address())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDefaultLimits: a pipeline whose configuration sets none takes events of a mebibyte, and
// batches of a thousand.
func TestDefaultLimits(t *testing.T) {
	events := filepath.Join(t.TempDir(), "events.ndjson")
	text := func(size int) string { return `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` + "\n" }
	small := strings.Repeat("{}\n", 2500)
	if err := os.WriteFile(events, []byte(text(1<<20)+text(1<<20+1)+small), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := options()
	var limits source.Limits
	kind := file.Kind()
	create := kind.New
	kind.New = func(env source.Env, decode func(any) error) (source.Source, error) {
		limits = env.Limits
		return create(env, decode)
	}
	opts.Kinds.Sources = append(opts.Kinds.Sources, kind)
	e, err := engine.Open(t.Context(), &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{{
		Name: "a", Source: config.Source{Kind: "file", Settings: file.Config{Path: events}}, Sinks: []config.Sink{{Kind: "discard"}},
	}}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := e.Status()[0]; s.Events != 2502 || s.Dead != 1 || s.Sinks[0].Rows != 2501 {
		t.Errorf("%d events, %d dead, %d rows", s.Events, s.Dead, s.Sinks[0].Rows)
	}
	if limits != (source.Limits{Events: 1000, Bytes: 1 << 20}) {
		t.Errorf("the limits of a batch are %+v", limits)
	}
}

// TestOpenFollowsNoLink plants a link in the place of each file that an engine makes in its data
// folder: whether it opens or says why not, the file behind the link stays as it is.
func TestOpenFollowsNoLink(t *testing.T) {
	open := func(data string) error {
		c := &config.Config{Data: data, Pipelines: []config.Pipeline{steady("a", 1)}}
		e, err := engine.Open(t.Context(), c, options())
		if err != nil {
			return err
		}
		return e.Close()
	}
	made := t.TempDir()
	if err := open(made); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(made)
	if err != nil || len(entries) < 3 {
		t.Fatalf("an engine makes %v, %v; want a lock, a name and dead letters", entries, err)
	}
	for _, entry := range entries {
		for _, name := range []string{entry.Name(), entry.Name() + ".new"} {
			data, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
			if err := errors.Join(os.WriteFile(target, []byte("precious"), 0o600), os.Symlink(target, filepath.Join(data, name))); err != nil {
				t.Fatal(err)
			}
			err := open(data)
			if text, _ := os.ReadFile(target); string(text) != "precious" {
				t.Errorf("behind the link %s: %q after Open, which returned %v", name, text, err)
			}
		}
	}
}
