package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/internal/tracing"
	"github.com/perigeedb/perigee/server"
)

var traceSpans = server.Metric{Name: "perigee_trace_spans_total", Type: "counter", Labels: []string{"result"},
	Help: "Spans of traces, by result: sent, or failed because the receiver did not take them."}

// traceTimeout bounds how long Close sends what is left.
const traceTimeout = time.Second

// traces are those of an engine whose configuration has a receiver for them.
type traces struct{ *tracing.Provider }

// startTraces returns nil if the configuration has no receiver.
func (e *Engine) startTraces(c config.Traces) (*traces, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	endpoint, err := c.URL()
	if err != nil {
		return nil, c.At(err, "")
	}
	p, err := tracing.Start(tracing.Config{
		Endpoint: endpoint, Headers: c.Headers, Sample: cmp.Or(c.Sample, config.DefaultTraceSample), Worker: e.worker, Log: e.log,
	})
	if err != nil {
		return nil, err
	}
	return &traces{p}, nil
}

// tracer returns what pipelines trace with; nil for none.
func (t *traces) tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.Tracer()
}

// Close implements io.Closer.
func (t *traces) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), traceTimeout)
	defer cancel()
	return t.Provider.Close(ctx)
}

// Describe implements prometheus.Collector.
func (*traces) Describe(ch chan<- *prometheus.Desc) { ch <- traceSpans.Desc() }

// Collect implements prometheus.Collector.
func (t *traces) Collect(ch chan<- prometheus.Metric) {
	if t == nil {
		return
	}
	sent, failed := t.Counts()
	ch <- prometheus.MustNewConstMetric(traceSpans.Desc(), prometheus.CounterValue, float64(sent), "sent")
	ch <- prometheus.MustNewConstMetric(traceSpans.Desc(), prometheus.CounterValue, float64(failed), "failed")
}
