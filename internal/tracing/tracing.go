// Package tracing sends OpenTelemetry traces to an OTLP receiver over HTTP.
//
// Ending a span never waits for the receiver: spans wait in a queue of bounded size, and are
// dropped when it is full. A receiver that cannot be reached is logged once a minute and is
// otherwise without effect. Nothing is sent for traces that were not sampled.
//
// It posts what the library encodes itself, instead of through the library's own client, which
// links gRPC: 9 MB of the program instead of 2.
//
// A Provider is safe for concurrent use.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bounds of what waits for the receiver.
const (
	queueSpans    = 4096
	sendInterval  = 5 * time.Second
	sendTimeout   = 10 * time.Second
	logInterval   = time.Minute
	scope         = "github.com/perigeedb/perigee"
	headerTimeout = 5 * time.Second
)

// Config says what is traced, and where traces are sent.
type Config struct {
	Endpoint *url.URL          // that spans are posted to
	Headers  map[string]string // sent with every request
	Sample   float64           // share of the traces that are recorded, above 0 and at most 1
	Worker   string            // names this process among those of the service
	Log      *slog.Logger
}

// A Provider records traces and sends them until it is closed.
type Provider struct {
	provider *sdk.TracerProvider
	exporter *exporter
	client   *client
}

// Start returns a provider. It does not connect.
func Start(c Config) (*Provider, error) {
	client := newClient(c.Endpoint, c.Headers)
	encoder, err := otlptrace.New(context.Background(), client)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	e := &exporter{SpanExporter: encoder, log: c.Log, endpoint: c.Endpoint.Redacted()}
	return &Provider{
		exporter: e, client: client,
		provider: sdk.NewTracerProvider(
			sdk.WithBatcher(e, sdk.WithMaxQueueSize(queueSpans), sdk.WithBatchTimeout(sendInterval), sdk.WithExportTimeout(sendTimeout)),
			sdk.WithSampler(sdk.TraceIDRatioBased(c.Sample)),
			sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "perigee"), attribute.String("service.instance.id", c.Worker))),
		),
	}, nil
}

// Tracer returns what starts spans.
func (p *Provider) Tracer() trace.Tracer { return p.provider.Tracer(scope) }

// Counts returns how many spans were sent, and how many the receiver did not take.
func (p *Provider) Counts() (sent, failed uint64) {
	return p.exporter.sent.Load(), p.exporter.failed.Load()
}

// Close sends the spans that have ended, until ctx ends.
func (p *Provider) Close(ctx context.Context) error {
	err := p.provider.Shutdown(ctx)
	p.client.close()
	p.client.http.CloseIdleConnections()
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // they are lost, as they are while the engine runs
	}
	return err
}

// An exporter counts what is sent. It logs failures itself, because the library would report them
// to a handler of the whole process.
type exporter struct {
	sdk.SpanExporter
	log          *slog.Logger
	endpoint     string
	sent, failed atomic.Uint64

	mu     sync.Mutex
	logged time.Time
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		e.sent.Add(uint64(len(spans)))
		return nil
	}
	failed := e.failed.Add(uint64(len(spans)))
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); now.Sub(e.logged) >= logInterval {
		e.logged = now
		e.log.Warn("sending traces failed; their spans are dropped", "endpoint", e.endpoint, "error", err, "spans", failed)
	}
	return nil
}
