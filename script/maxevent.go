package script

import (
	"bytes"
	"context"
	"fmt"

	"github.com/perigeedb/perigee/event"
)

// A MaxEvent runs a script on the events that have at most Bytes bytes. Each larger one becomes a dead
// letter of stage "parse" with the whole event, so that it can be retried under a higher limit; the
// script and the indexes of documents never see it. It keeps memory from batch to batch, and one
// goroutine uses it at a time.
type MaxEvent struct {
	Bytes int // 0 means no limit
	rest  event.Batch
}

// Run is s.Run.
func (m *MaxEvent) Run(ctx context.Context, s Script, in *event.Batch, res *event.Result) error {
	if !m.exceeded(in) {
		return s.Run(ctx, in, res)
	}
	m.leaveOut(in)
	err := s.Run(ctx, &m.rest, res)
	for i := range res.Dead {
		dead := &res.Dead[i]
		if doc := in.Doc(int(dead.Position - in.Range.First)); dead.Sink == "" && m.IsLarge(doc) {
			dead.Stage, dead.Traceback, dead.Original = "parse", "", bytes.Clone(doc)
			dead.Error = fmt.Sprintf("the event has %d bytes, more than max_event of the pipeline, which is %d; raise it and retry, or send less", len(doc), m.Bytes)
		}
	}
	return err
}

// IsLarge reports whether an event is larger than the limit.
func (m *MaxEvent) IsLarge(doc []byte) bool { return m.Bytes > 0 && len(doc) > m.Bytes }

func (m *MaxEvent) exceeded(in *event.Batch) bool {
	if m.Bytes == 0 || len(in.Data) <= m.Bytes {
		return false
	}
	for i := range in.Ends {
		if m.IsLarge(in.Doc(i)) {
			return true
		}
	}
	return false
}

// leaveOut copies the batch, with an empty document, which every script rejects, in the place of each
// large event.
func (m *MaxEvent) leaveOut(in *event.Batch) {
	m.rest.Reset()
	m.rest.Partition, m.rest.Range = in.Partition, in.Range
	m.rest.Time, m.rest.State, m.rest.Reads, m.rest.Timers, m.rest.Retry = in.Time, in.State, in.Reads, in.Timers, in.Retry
	for i := range in.Ends {
		if doc := in.Doc(i); m.IsLarge(doc) {
			m.rest.Append(nil)
		} else {
			m.rest.Append(doc)
		}
	}
}
