//go:build linux

package isolate

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/script/passthrough"
	"github.com/perigeedb/perigee/script/scripttest"
)

// launcher starts workers of the test binary.
var launcher *Launcher

func TestMain(m *testing.M) {
	launcher = Init(append(pluginLanguages(), lua.Language(), passthrough.Language(), faultyLanguage())...)
	code := m.Run()
	removePlugins()
	os.Exit(code)
}

func TestConformance(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector slows functions of Go beyond the time after which a process is killed")
	}
	luajit := lua.Slower() == ""
	scripttest.Test(t, launcher.Language(lua.Language()), scripttest.Features{Memory: luajit, MixedOrder: luajit})
}

// TestUnknownLanguage loads code of a language that workers do not support.
func TestUnknownLanguage(t *testing.T) {
	_, err := launcher.Language(script.Language{Name: "cobol"}).Load(t.Context(), script.Code{Name: "a"}, script.Options{})
	if err == nil || !strings.Contains(err.Error(), "script workers do not support language cobol") {
		t.Errorf("got %v", err)
	}
}

func TestStateIsRefused(t *testing.T) {
	_, err := launcher.Language(lua.Language()).Load(t.Context(), script.Code{Name: "a.lua", Text: []byte("function main() end")},
		script.Options{Timer: true, Sinks: []script.Sink{{}}})
	if err == nil || !strings.Contains(err.Error(), "leave out isolate: process") {
		t.Errorf("with timers: %v, want an error about the state", err)
	}
}

func load(t testing.TB, lang script.Language, code script.Code, opts script.Options) script.Script {
	t.Helper()
	if opts.Sinks == nil {
		opts.Sinks = []script.Sink{{}}
	}
	s, err := launcher.Language(lang).Load(t.Context(), code, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

const firstPosition = 1000

func batchOf(docs ...string) *event.Batch {
	b := &event.Batch{Partition: "p", Range: event.Range{First: firstPosition, Count: uint64(len(docs))}}
	for _, doc := range docs {
		b.Append([]byte(doc))
	}
	return b
}

func resultOf() *event.Result { return &event.Result{Outputs: make([]event.Output, 1)} }

// runDocs runs docs and checks that every event is accounted for.
func runDocs(t testing.TB, s script.Script, docs ...string) *event.Result {
	t.Helper()
	res := resultOf()
	if err := s.Run(t.Context(), batchOf(docs...), res); err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for _, from := range res.Outputs[0].From {
		seen[firstPosition+uint64(from)] = true
	}
	for i := range res.Dead {
		if d := &res.Dead[i]; seen[d.Position] || string(d.Original) != docs[d.Position-firstPosition] {
			t.Errorf("dead letter %v of %s", d, d.Original)
		}
		seen[res.Dead[i].Position] = true
	}
	if res.Ran != len(docs) || len(seen)+res.Dropped != len(docs) {
		t.Errorf("%d of %d ran, %d came out or died, %d were dropped", res.Ran, len(docs), len(seen), res.Dropped)
	}
	return res
}

// outLines returns the documents of the first output.
func outLines(res *event.Result) string {
	var all []string
	for i := range res.Outputs[0].Len() {
		all = append(all, fmt.Sprint(string(res.Outputs[0].Doc(i))))
	}
	return strings.Join(all, " ")
}

// TestPieces runs batches of several pieces. The script calls its parent while the parent writes
// the rest of a batch, and the output limit ends runs before the last piece.
func TestPieces(t *testing.T) {
	double := func(_ context.Context, args []any) ([]any, error) { return []any{2 * args[0].(float64)}, nil }
	s := load(t, lua.Language(), script.Code{Name: "pieces.lua", Text: []byte(`
		local host = require "host"
		function main(event)
			event.n = host.double(event.n)
			return event
		end`)}, script.Options{
		Limits:  script.Limits{Output: 50_000},
		Modules: []script.Module{{Name: "host", Functions: map[string]script.Func{"double": double}}},
	})
	for _, events := range []int{1, pieceEvents, pieceEvents + 1, 2*pieceEvents - 1, 2 * pieceEvents, 2*pieceEvents + 1} {
		var docs, want, got []string
		for i := range events {
			pad := strings.Repeat("x", i%200)
			docs = append(docs, fmt.Sprintf(`{"pad":%q,"n":%d}`, pad, i))
			want = append(want, fmt.Sprintf(`{"pad":%q,"n":%d}`, pad, 2*i))
		}
		res, limits := resultOf(), 0
		err := script.RunAll(t.Context(), s, batchOf(docs...), res, 0, func(_ *event.Batch, limit *script.LimitError) error {
			if limit != nil {
				limits++
			}
			for i := range res.Outputs[0].Len() {
				got = append(got, string(res.Outputs[0].Doc(i)))
			}
			return nil
		})
		if err != nil || len(res.Dead) > 0 || (limits > 0) != (events > 1) {
			t.Errorf("%d events: %v, dead %v, %d limits", events, err, res.Dead, limits)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%d events (-want +got):\n%s", events, diff)
		}
	}
}

// TestMemoryBetweenBatches checks that the shared memory of a small batch is kept for the next one,
// and that of a large one is released.
func TestMemoryBetweenBatches(t *testing.T) {
	s := load(t, passthrough.Language(), script.Code{}, script.Options{}).(*isolatedScript)
	for _, test := range []struct {
		bytes int // size of the batch, and of its rows
		kept  bool
	}{{100, true}, {keptBytes / 2, true}, {keptBytes/2 + 1, false}} {
		doc := fmt.Sprintf(`{"pad":"%s"}`, strings.Repeat("x", test.bytes-len(`{"pad":""}`)))
		if got := outLines(runDocs(t, s, doc)); got != doc {
			t.Fatalf("%d bytes came out of %d", len(got), len(doc))
		}
		m, err := s.group.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		request := m.VM.(*process).memory.request
		if kept := strings.Contains(string(request[:100]), doc[:50]); kept != test.kept {
			t.Errorf("the memory of a batch of %d bytes is kept: %v", test.bytes, kept)
		}
		m.Release()
	}
}
