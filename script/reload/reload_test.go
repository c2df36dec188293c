package reload_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/script/reload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bench is a script in a folder that can be replaced.
type bench struct {
	*reload.Script
	t      *testing.T
	limits script.Limits
	path   string
	log    *bytes.Buffer
	open   atomic.Int32 // scripts that are loaded and not closed
}

func (b *bench) write(text string) {
	b.t.Helper()
	replaceFile(b.t, b.path, text)
}

// replaceFile is what an editor does that loses nothing: a new file, renamed.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+"~", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

// A counted script tells when it is closed.
type counted struct {
	script.Script
	open *atomic.Int32
}

func (c counted) Close() error {
	c.open.Add(-1)
	return c.Script.Close()
}

// The limits of scripts: low where a test waits for an endless one, and high
// where a machine short of processors must not fail it.
var (
	quick   = script.Limits{EventTime: 50 * time.Millisecond, BatchTime: 200 * time.Millisecond}
	patient = script.Limits{EventTime: time.Minute, BatchTime: time.Minute}
)

func newBench(t *testing.T, text string, limits script.Limits) *bench {
	b := &bench{t: t, limits: limits, path: filepath.Join(t.TempDir(), "email.lua"), log: &bytes.Buffer{}}
	b.write(text)
	b.Script = b.start(loader.Config{}, b.path)
	return b
}

func (b *bench) start(c loader.Config, text string) *reload.Script {
	b.t.Helper()
	c.Lookup = func(string) (string, bool) { return "", false }
	l, err := loader.New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(l.Close)
	origin, err := loader.Locate(text, "", "inline")
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := reload.New(b.t.Context(), reload.Config{
		Loader: l, Origins: []loader.Origin{origin}, Sinks: 1, Log: slog.New(slog.NewTextHandler(b.log, nil)),
		Load: func(ctx context.Context, codes []script.Code, _ bool) (script.Script, error) {
			loaded, err := lua.Language().Load(ctx, codes[0], script.Options{
				Sinks:  []script.Sink{{}},
				Limits: b.limits,
			})
			if err != nil {
				return nil, err
			}
			b.open.Add(1)
			return counted{loaded, &b.open}, nil
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		s.Close()
		if n := b.open.Load(); n != 0 {
			b.t.Errorf("%d versions are still open", n)
		}
	})
	return s
}

// pass returns what comes of events, or the first dead letter.
func (b *bench) pass(docs ...string) string {
	b.t.Helper()
	in := event.Batch{Range: event.Range{First: 7, Count: uint64(len(docs))}}
	for _, doc := range docs {
		in.Append([]byte(doc))
	}
	res := event.Result{Outputs: make([]event.Output, 1)}
	if err := b.Run(b.t.Context(), &in, &res); err != nil {
		b.t.Fatal(err)
	}
	if len(res.Dead) > 0 {
		return res.Dead[0].Script + ": " + res.Dead[0].Error
	}
	return string(res.Outputs[0].Data)
}

func (b *bench) want(want string, docs ...string) {
	b.t.Helper()
	if got := b.pass(docs...); got != want {
		b.t.Errorf("the script makes %s, want %s", got, want)
	}
}

func (b *bench) logged(part string) {
	b.t.Helper()
	if !strings.Contains(b.log.String(), part) {
		b.t.Errorf("the log lacks %q:\n%s", part, b.log)
	}
}

const versionScript = `function main(event) return {version = %d} end`

func TestReplace(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	b.want(`{"version":1}`, `{}`)
	if b.Check(t.Context(), true) || b.Counts() != (reload.Counts{}) {
		t.Errorf("replaced by itself: %+v", b.Counts())
	}
	before := b.String()
	b.write(fmt.Sprintf(versionScript, 2))
	if !b.Check(t.Context(), true) {
		t.Error("not replaced")
	}
	b.want(`{"version":2}`, `{}`)
	if b.String() == before || b.Counts() != (reload.Counts{Replaced: 1}) || b.open.Load() != 1 {
		t.Errorf("now runs %s after %s, %+v, %d open", b, before, b.Counts(), b.open.Load())
	}
	b.logged("script replaced")
}

// TestRefuse: whatever is wrong with a new version, the old one goes on; it is
// said once; and the next good version takes its place.
func TestRefuse(t *testing.T) {
	for name, c := range map[string]struct{ text, reason string }{
		"syntax":               {"function main(event)", "email.lua:1"},
		"no main":              {"function mian(event) return event end", "main"},
		"error at load":        {"error('no config')\nfunction main(e) return e end", "no config"},
		"endless at load":      {"while true do end", "time"},
		"fails on all":         {"function main(event) return event.user.name end", "it fails on all of 2 recent events"},
		"returns no event":     {"function main(event) return 5 end", "it fails on all of 2 recent events"},
		"endless on events":    {"function main(event) while true do end end", "it fails on all of 2 recent events"},
		"requires what is not": {"require 'lib.none'\nfunction main(e) return e end", "lib"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
			b.want(`{"version":1}{"version":1}`, `{}`, `{"a":1}`)
			b.write(c.text)
			for range 3 {
				if b.Check(t.Context(), true) {
					t.Error("replaced")
				}
			}
			b.want(`{"version":1}`, `{}`)
			if b.Counts() != (reload.Counts{Refused: 1}) || b.open.Load() != 1 {
				t.Errorf("%+v, %d open", b.Counts(), b.open.Load())
			}
			b.logged("refused new version of script; the old one stays")
			b.logged(c.reason)
			b.write(fmt.Sprintf(versionScript, 3))
			b.Check(t.Context(), true)
			b.want(`{"version":3}`, `{}`)
		})
	}
}

// TestFailsOnSome: a script may refuse events that the old one took; that it
// does so is said.
func TestFailsOnSome(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	b.want(`{"version":1}{"version":1}`, `{"a":{"b":1}}`, `{}`)
	b.write("function main(event) return {b = event.a.b} end")
	if !b.Check(t.Context(), true) {
		t.Error("not replaced")
	}
	b.logged("failed=1 of=2")
}

// TestUnreadable: an origin that is gone for a while changes nothing, and what
// the old version did not take is no reason to refuse a new one.
func TestUnreadable(t *testing.T) {
	b := newBench(t, "function main(event) error('always') end", quick)
	if got := b.pass(`{}`); !strings.Contains(got, "always") {
		t.Fatal(got)
	}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	b.Check(t.Context(), true)
	b.Check(t.Context(), true)
	if b.Counts() != (reload.Counts{Unreadable: 2}) || strings.Count(b.log.String(), "cannot check for") != 1 {
		t.Errorf("%+v\n%s", b.Counts(), b.log)
	}
	b.write("function main(event) error('again') end")
	if !b.Check(t.Context(), true) {
		t.Error("not replaced")
	}
}

func TestReplaceOnHost(t *testing.T) {
	var text, asked atomic.Value
	text.Store(fmt.Sprintf(versionScript, 1))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tag := fmt.Sprintf("%q", fmt.Sprint(len(text.Load().(string))))
		asked.Store(r.Header.Get("If-None-Match"))
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", tag)
		fmt.Fprint(w, text.Load())
	}))
	t.Cleanup(server.Close)
	b := &bench{t: t, log: &bytes.Buffer{}}
	b.Script = b.start(loader.Config{Allow: []string{"127.0.0.1"}}, server.URL+"/email.lua")
	if b.Check(t.Context(), true) || asked.Load() == "" {
		t.Errorf("replaced, or asked without a tag: %q", asked.Load())
	}
	text.Store(fmt.Sprintf(versionScript, 20))
	if b.Check(t.Context(), false) {
		t.Error("a look at this machine alone asked the host")
	}
	if !b.Check(t.Context(), true) {
		t.Error("not replaced")
	}
	b.want(`{"version":20}`, `{}`)
	server.Close()
	if b.Check(t.Context(), true) || b.Counts() != (reload.Counts{Replaced: 1, Unreadable: 1}) {
		t.Errorf("without the host: %+v", b.Counts())
	}
	b.want(`{"version":20}`, `{}`)
}

// TestRequired: what the code requires belongs to its version. While a host does
// not answer, it is not taken for gone.
func TestRequired(t *testing.T) {
	var lib, status atomic.Value
	lib.Store("return {version = 1}")
	status.Store(http.StatusOK)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /email.lua", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "local lib = require 'lib' function main(event) return {version = lib.version} end")
	})
	mux.HandleFunc("GET /lib.lua", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status.Load().(int))
		fmt.Fprint(w, lib.Load())
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b := &bench{t: t, log: &bytes.Buffer{}}
	b.Script = b.start(loader.Config{Allow: []string{"127.0.0.1"}}, server.URL+"/email.lua")
	lib.Store("return {version = 2}")
	b.want(`{"version":1}`, `{}`)
	if !b.Check(t.Context(), true) {
		t.Error("not replaced")
	}
	b.want(`{"version":2}`, `{}`)
	status.Store(http.StatusServiceUnavailable)
	if b.Check(t.Context(), true) || b.Counts() != (reload.Counts{Replaced: 1, Unreadable: 1}) {
		t.Errorf("the host does not answer: %+v", b.Counts())
	}
	status.Store(http.StatusNotFound)
	if b.Check(t.Context(), true) || b.Counts() != (reload.Counts{Replaced: 1, Unreadable: 1, Refused: 1}) {
		t.Errorf("the file is gone: %+v", b.Counts())
	}
	b.want(`{"version":2}`, `{}`)
}

// TestAdopt makes the version that another script runs the current one, with the module that it has
// required, although its files have changed since; and follows its file from then on.
func TestAdopt(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	b.want(`{"version":1}`, `{}`)
	other := newBench(t, fmt.Sprintf(versionScript, 0), quick)
	module := filepath.Join(filepath.Dir(other.path), "m.lua")
	replaceFile(t, module, "return 2")
	other.write("local m = require 'm' function main(event) return {version = m} end")
	other.Check(t.Context(), true)
	other.want(`{"version":2}`, `{}`)
	replaceFile(t, module, "return 3")

	if err := b.Adopt(t.Context(), other.Script, false); err != nil {
		t.Fatal(err)
	}
	b.want(`{"version":2}`, `{}`)
	if b.Counts() != (reload.Counts{Replaced: 1}) || b.open.Load() != 1 {
		t.Errorf("%+v, %d open", b.Counts(), b.open.Load())
	}
	b.write(fmt.Sprintf(versionScript, 4)) // the file before
	if !b.Check(t.Context(), true) {
		t.Error("the module has changed, and the script was not replaced")
	}
	b.want(`{"version":3}`, `{}`)
	other.write(fmt.Sprintf(versionScript, 5))
	b.Check(t.Context(), true)
	b.want(`{"version":5}`, `{}`)
}

// TestAdoptRefuses tries the version on recent events, unless it need not.
func TestAdoptRefuses(t *testing.T) {
	b := newBench(t, fmt.Sprintf(versionScript, 1), quick)
	b.want(`{"version":1}`, `{}`)
	other := newBench(t, "function main(event) error('always') end", quick)
	if err := b.Adopt(t.Context(), other.Script, false); err == nil || !strings.Contains(err.Error(), "it fails on all of 1 recent events") {
		t.Errorf("the error is %v", err)
	}
	b.want(`{"version":1}`, `{}`)
	if b.Check(t.Context(), true) {
		t.Error("a refused version changed the script")
	}
	if err := b.Adopt(t.Context(), other.Script, true); err != nil {
		t.Fatal(err)
	}
	if got := b.pass(`{}`); !strings.Contains(got, "always") {
		t.Errorf("the script makes %s", got)
	}
}
