package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/trace/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A receiver takes spans as OTLP over HTTP has them.
type receiver struct {
	*httptest.Server
	refuse func() int // status of the next answer; nil and 0 mean to take the spans

	mu       sync.Mutex
	headers  http.Header
	paths    []string
	services map[string]bool
	spans    []string // by name
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{services: map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.refuse != nil {
			if status := r.refuse(); status != 0 {
				w.WriteHeader(status)
				io.WriteString(w, "busy\x1b\n")
				return
			}
		}
		if err := r.take(q); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(q *http.Request) error {
	z, err := gzip.NewReader(q.Body)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	var message collector.TracesData
	if err := proto.Unmarshal(body, &message); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers, r.paths = q.Header, append(r.paths, q.Method+" "+q.URL.Path)
	for _, of := range message.ResourceSpans {
		for _, a := range of.Resource.Attributes {
			r.services[a.Key+"="+a.Value.GetStringValue()] = true
		}
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				r.spans = append(r.spans, s.Name)
			}
		}
	}
	return nil
}

func start(t *testing.T, endpoint string, log io.Writer) *Provider {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Config{
		Endpoint: u, Headers: map[string]string{"Authorization": "Bearer x"}, Sample: 1, Worker: "w1",
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Provider) span(name string) {
	_, s := p.Tracer().Start(context.Background(), name)
	s.End()
}

func TestSend(t *testing.T) {
	r := newReceiver(t)
	p := start(t, r.URL+"/v1/traces", io.Discard)
	p.span("one")
	p.span("two")
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.spans, " "); got != "one two" || r.paths[0] != "POST /v1/traces" {
		t.Errorf("received %s at %v", got, r.paths)
	}
	if !r.services["service.name=perigee"] || !r.services["service.instance.id=w1"] {
		t.Errorf("from %v", r.services)
	}
	if r.headers.Get("Authorization") != "Bearer x" || r.headers.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("with %v", r.headers)
	}
	if sent, failed := p.Counts(); sent != 2 || failed != 0 {
		t.Errorf("%d sent and %d failed", sent, failed)
	}
}

// TestBusyReceiver: spans that a receiver is too busy for are sent again.
func TestBusyReceiver(t *testing.T) {
	r := newReceiver(t)
	var attempts atomic.Int64
	r.refuse = func() int {
		if attempts.Add(1) == 1 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	p := start(t, r.URL, io.Discard)
	p.span("one")
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.spans) != 1 || attempts.Load() != 2 {
		t.Errorf("received %v after %d attempts", r.spans, attempts.Load())
	}
}

// TestRefusingReceiver: a receiver that refuses spans is logged, with what it answers.
func TestRefusingReceiver(t *testing.T) {
	r := newReceiver(t)
	r.refuse = func() int { return http.StatusUnauthorized }
	var log bytes.Buffer
	p := start(t, r.URL, &log)
	p.span("one")
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "the receiver answered 401 Unauthorized: busy\"") || strings.Contains(log.String(), "Bearer") {
		t.Errorf("logged %q", log.String())
	}
	if _, failed := p.Counts(); failed != 1 {
		t.Errorf("%d failed", failed)
	}
}

// TestRedirect: the headers go to no other host.
func TestRedirect(t *testing.T) {
	other := newReceiver(t)
	r := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer r.Close()
	p := start(t, r.URL, io.Discard)
	p.span("one")
	p.Close(t.Context())
	if len(other.paths) != 0 {
		t.Errorf("another host got %v", other.paths)
	}
}

// TestAbsentReceiver: spans never wait, neither for a receiver that does not answer, nor for one
// that cannot be reached, and Close ends in time.
func TestAbsentReceiver(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, endpoint := range map[string]string{"silent": "http://" + silent.Addr().String(), "closed": closed.URL} {
		t.Run(name, func(t *testing.T) {
			p := start(t, endpoint, io.Discard)
			began := time.Now()
			for range 20 * queueSpans {
				p.span("one")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%d spans took %v", 20*queueSpans, took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began = time.Now()
			if err := p.Close(ctx); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("Close took %v", took)
			}
			if sent, _ := p.Counts(); sent != 0 {
				t.Errorf("%d spans were sent", sent)
			}
		})
	}
}
