package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/perigeedb/perigee/event"
)

// record traces a share of the batches of r.
func (r harness) record(t *testing.T, share float64) *tracetest.SpanRecorder {
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithSampler(sdk.TraceIDRatioBased(share)))
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	r.config.Tracer = provider.Tracer("test")
	return recorder
}

// describe returns a span with what it says about its batch.
func describe(s sdk.ReadOnlySpan) string {
	text := s.Name()
	for _, a := range s.Attributes() {
		if a.Key != "perigee.bytes" {
			text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
		}
	}
	for _, e := range s.Events() {
		text += " " + e.Name
	}
	if status := s.Status(); status.Code == codes.Error {
		text += ": " + status.Description
	}
	return text
}

func TestTrace(t *testing.T) {
	to := newMemorySink()
	var fails atomic.Int64
	to.beforeCommit = func(context.Context) error {
		if fails.Add(1) == 1 {
			return errors.New("connection refused")
		}
		return nil
	}
	main := func(position uint64, doc string) ([]string, error) {
		switch position {
		case 1:
			return nil, nil
		case 2:
			return nil, errors.New("no good")
		case 3:
			return []string{"bad " + doc}, nil
		}
		return []string{doc}, nil
	}
	r := newHarness(t, newMemorySource(newMemoryPartition("a", 10)), testScript{main: main}, to)
	recorder := r.record(t, 1)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	spans := recorder.Ended()
	root := spans[len(spans)-1]
	for _, s := range spans {
		got = append(got, describe(s))
		if s != root && s.Parent().SpanID() != root.SpanContext().SpanID() {
			t.Errorf("%s is not a step of %s", s.Name(), root.Name())
		}
		if s.StartTime().Before(root.StartTime()) || s.EndTime().After(root.EndTime()) {
			t.Errorf("%s is outside of its batch", s.Name())
		}
	}
	want := []string{
		"wait for lane",
		"script perigee.script=test.lua 1 perigee.events=10 perigee.dropped=1 perigee.dead_letters=1",
		"dead letters",
		"sink table perigee.rows=8 perigee.attempts=2 exception exception: row 1 rejected: bad row",
		"dead letters",
		"sink table perigee.rows=7 perigee.attempts=1",
		"ack",
		"deliver test perigee.pipeline=test perigee.partition=a perigee.position=0 messaging.batch.message_count=10",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTraceOfFailure: the trace of a batch that stops the pipeline says where it failed.
func TestTraceOfFailure(t *testing.T) {
	q := newMemorySource(newMemoryPartition("a", 10))
	q.onAck = func(context.Context) error { return &event.PermanentError{Err: errors.New("the queue is gone")} }
	r := newHarness(t, q, testScript{main: passThrough}, newMemorySink())
	recorder := r.record(t, 1)
	if err := r.Run(t.Context()); err == nil {
		t.Fatal("no error")
	}
	spans := recorder.Ended()
	for _, s := range spans[len(spans)-2:] {
		if s.Status().Code != codes.Error {
			t.Errorf("%s did not fail", s.Name())
		}
	}
}

func TestTraceSamples(t *testing.T) {
	r := newHarness(t, newMemorySource(newMemoryPartition("a", 20_000)), testScript{main: passThrough}, newMemorySink())
	recorder := r.record(t, 0.1)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	traces := map[string][]string{}
	for _, s := range recorder.Ended() {
		id := s.SpanContext().TraceID().String()
		traces[id] = append(traces[id], s.Name())
	}
	if n := len(traces); n < 100 || n > 320 {
		t.Errorf("traced %d of 2000 batches, want about 200", n)
	}
	for id, names := range traces {
		if !slices.Equal(names, []string{"wait for lane", "script", "dead letters", "sink table", "ack", "deliver test"}) {
			t.Errorf("trace %s: %v", id, names)
		}
	}
}

// TestTraceAllocations: a pipeline without a tracer allocates nothing for traces.
func TestTraceAllocations(t *testing.T) {
	var s session
	s.p = &Pipeline{}
	c := new(claim)
	if n := testing.AllocsPerRun(100, func() {
		c.trace = s.startTrace(c)
		for _, step := range []step{c.trace.start("script"), c.trace.startAt("sink", "table")} {
			step.setInt("n", 1)
			step.setString("s", "text")
			step.addFailure(nil)
			step.end(nil)
		}
		c.trace.end(c, "test", nil)
	}); n != 0 {
		t.Errorf("%v allocations for a batch that is not traced", n)
	}
}
