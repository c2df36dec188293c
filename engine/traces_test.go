package engine_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/source/generate"
)

// traced is a configuration with two sinks, whose batches are traced.
func traced(t *testing.T, endpoint string, sample float64) *config.Config {
	return &config.Config{
		Data: t.TempDir(), Traces: config.Traces{Endpoint: endpoint, Sample: sample},
		Pipelines: []config.Pipeline{{
			Name:   "mails",
			Source: config.Source{Kind: "generate", Settings: generate.Config{Events: 5000}},
			Script: &config.Script{Text: "function main(event) return event end"},
			Sinks:  []config.Sink{{Kind: "discard", Name: "a"}, {Kind: "discard", Name: "b"}},
		}},
	}
}

func runOnce(t *testing.T, c *config.Config) {
	t.Helper()
	e, err := engine.Open(t.Context(), c, options())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if got := e.Status(); len(got) != 0 {
		t.Errorf("%d pipelines after Close", len(got))
	}
}

// TestTraces runs an engine beside a receiver, and expects the steps of every batch there.
func TestTraces(t *testing.T) {
	var mu sync.Mutex
	steps := map[string]map[string]int{} // by trace
	r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		z, err := gzip.NewReader(q.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(z)
		var message tracepb.TracesData
		if err != nil || proto.Unmarshal(body, &message) != nil || q.URL.Path != "/v1/traces" {
			t.Errorf("request to %s: %v", q.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range message.ResourceSpans {
			for _, in := range of.ScopeSpans {
				for _, s := range in.Spans {
					if steps[string(s.TraceId)] == nil {
						steps[string(s.TraceId)] = map[string]int{}
					}
					steps[string(s.TraceId)][s.Name]++
				}
			}
		}
	}))
	defer r.Close()
	runOnce(t, traced(t, r.URL, 1))
	if len(steps) != 5 {
		t.Errorf("%d traces of 5 batches", len(steps))
	}
	for _, of := range steps {
		for _, name := range []string{"deliver mails", "wait for lane", "script", "outbox", "sink a", "sink b", "ack"} {
			if of[name] != 1 {
				t.Errorf("a trace has %d spans %q: %v", of[name], name, of)
			}
		}
	}
}

// TestTracesWithoutReceiver: the engine does not care.
func TestTracesWithoutReceiver(t *testing.T) {
	r := httptest.NewServer(nil)
	r.Close()
	runOnce(t, traced(t, r.URL, 1))
}

func TestTracesOff(t *testing.T) {
	c := traced(t, "", 0)
	runOnce(t, c)
	c.Traces.Sample = 1.5
	if _, err := engine.Open(t.Context(), c, options()); err == nil || !strings.Contains(err.Error(), "Traces: sample must be above 0 and at most 1") {
		t.Errorf("Open says %v", err)
	}
}
