package nats

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// verifyDone checks that the stream still has the messages that the sinks committed, and
// that no other message is gone. A stream only grows at its end, so it compares the last
// committed message alone.
func (s *Source) verifyDone(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState, partition string, done event.Ranges) error {
	if len(done) == 0 {
		return nil
	}
	last := done[len(done)-1].End() // the sequence number of the last message
	if state.LastSeq < last {
		return s.rollbackError(partition, state.LastSeq, fmt.Errorf("the sinks committed stream %s up to sequence %d, but it ends at %d",
			s.config.Stream, last, state.LastSeq))
	}
	if err := s.compareLastMessage(ctx, stream, state, partition, done[len(done)-1]); err != nil {
		return err
	}
	return s.checkGap(stream.CachedInfo().Config, state, partition, done)
}

// checkGap returns an error when messages were removed from the front of the stream that
// the sinks do not have. Sequence numbers that never had a message for this source look
// the same once they are removed. Where there may be such, the gap is only logged.
func (s *Source) checkGap(stream jetstream.StreamConfig, state jetstream.StreamState, partition string, done event.Ranges) error {
	next := done.Next(done[0].First)
	if state.FirstSeq <= next+1 || !s.env.Remembered {
		return nil
	}
	if s.config.Subject != "" || s.config.Trim || stream.MaxMsgsPerSubject > 0 || stream.AllowMsgTTL || stream.AllowRollup {
		var removed uint64
		for _, gap := range done.Missing(event.Range{First: next, Count: state.FirstSeq - 1 - next}) {
			removed += gap.Count
		}
		s.env.Log.Warn("the front of the stream was removed; the sinks have everything that was read of it",
			"partition", partition, "first sequence", state.FirstSeq, "sequences never read or without a message", removed)
		return nil
	}
	return &event.PermanentError{
		Err: fmt.Errorf("sequences [%d,%d) of stream %s were removed before every sink had them", next+1, state.FirstSeq, s.config.Stream),
		Hint: fmt.Sprintf("the stream's limits removed them: raise the limits, and skip them with: %s",
			source.SetPosition(s.env.Pipeline, partition, state.FirstSeq-1)),
	}
}

// compareLastMessage compares the last message that the sinks committed with the one in
// the stream.
func (s *Source) compareLastMessage(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState, partition string, last event.Range) error {
	seq := last.End()
	if len(last.Fingerprints) == 0 || seq < state.FirstSeq {
		return nil // nothing to compare
	}
	message, err := stream.GetMsg(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil // deleted by hand
	case err != nil:
		return fmt.Errorf("read message %d of stream %s: %w", seq, s.config.Stream, err)
	case crc32.Checksum(message.Data, castagnoli) != last.Fingerprints[len(last.Fingerprints)-1]:
		return s.rollbackError(partition, last.First, fmt.Errorf("message %d of stream %s differs from the one that the sinks committed", seq, s.config.Stream))
	}
	return nil
}

// rollbackError says that sequences from at on may have other messages than before.
func (s *Source) rollbackError(partition string, at uint64, err error) error {
	return &event.PermanentError{
		Err: err,
		Hint: fmt.Sprintf("the stream was restored to an older state, and its sequences have other messages now: find the first that differs and continue there, at the latest with: %s",
			source.SetPosition(s.env.Pipeline, partition, at)),
	}
}
