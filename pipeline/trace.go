package pipeline

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// A batchTrace is the trace of one batch, from the moment when the source has handed it over until
// it is acknowledged. The lane of the batch uses it. nil traces nothing.
type batchTrace struct {
	tracer trace.Tracer
	root   trace.Span
	ctx    context.Context // of root
}

// startTrace returns the trace of a batch, or nil if it is not sampled.
func (s *session) startTrace(c *claim) *batchTrace {
	tracer := s.p.config.Tracer
	if tracer == nil {
		return nil
	}
	ctx, root := tracer.Start(context.Background(), "deliver "+s.p.config.Name,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(c.read))
	if !root.IsRecording() {
		return nil
	}
	t := &batchTrace{tracer, root, ctx}
	_, queued := tracer.Start(ctx, "wait for lane", trace.WithTimestamp(c.read))
	queued.End()
	return t
}

// end ends the trace of a batch, which err has stopped unless it is nil.
func (t *batchTrace) end(c *claim, pipeline string, err error) {
	if t == nil {
		return
	}
	b := &c.batch
	t.root.SetAttributes(
		attribute.String("perigee.pipeline", pipeline), attribute.String("perigee.partition", b.Partition),
		attribute.Int64("perigee.position", int64(b.Range.First)), attribute.Int("messaging.batch.message_count", b.Len()),
		attribute.Int("perigee.bytes", len(b.Data)),
	)
	step{t.root}.end(err)
}

// start starts a step of the batch, which the caller ends.
func (t *batchTrace) start(name string) step {
	if t == nil {
		return step{}
	}
	_, span := t.tracer.Start(t.ctx, name)
	return step{span}
}

// startAt is start for a step at a sink or another place with a name.
func (t *batchTrace) startAt(name, place string) step {
	if t == nil {
		return step{}
	}
	return t.start(name + " " + place)
}

// A step is the span of one step of a batch. The zero step records nothing.
type step struct{ span trace.Span }

func (s step) setInt(key string, n int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, n))
	}
}

func (s step) setString(key, text string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, text))
	}
}

// addFailure adds an attempt that failed.
func (s step) addFailure(err error) {
	if s.span != nil && err != nil {
		s.span.RecordError(err)
	}
}

// end ends the step, which has failed unless err is nil.
func (s step) end(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}
