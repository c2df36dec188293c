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

// verify makes sure that the stream is the one that the sinks have, and that
// nothing went from it that they have not. A stream only grows at its end, so the
// last message that they have speaks for all before it.
func (s *Source) verify(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState, partition string, done event.Ranges) error {
	if len(done) == 0 {
		return nil
	}
	last := done[len(done)-1].End() // the sequence number of the last message
	if state.LastSeq < last {
		return s.older(partition, state.LastSeq, fmt.Errorf("the sinks have stream %s up to sequence %d, but it ends at %d",
			s.config.Stream, last, state.LastSeq))
	}
	if err := s.same(ctx, stream, state, partition, done[len(done)-1]); err != nil {
		return err
	}
	return s.noGap(stream.CachedInfo().Config, state, partition, done)
}

// noGap refuses sinks that lack what is gone from the stream's front. Sequence
// numbers that never held a message for this source look the same once they are
// gone; where there may be such, they are told and not refused.
func (s *Source) noGap(stream jetstream.StreamConfig, state jetstream.StreamState, partition string, done event.Ranges) error {
	next := done.Next(done[0].First)
	if state.FirstSeq <= next+1 || !s.env.Remembered {
		return nil
	}
	if s.config.Subject != "" || s.config.Trim || stream.MaxMsgsPerSubject > 0 || stream.AllowMsgTTL || stream.AllowRollup {
		var gone uint64
		for _, gap := range done.Missing(event.Range{First: next, Count: state.FirstSeq - 1 - next}) {
			gone += gap.Count
		}
		s.env.Log.Warn("the front of the stream is gone; the sinks have what was read of it",
			"partition", partition, "first sequence", state.FirstSeq, "never read, or no messages", gone)
		return nil
	}
	return &event.PermanentError{
		Err: fmt.Errorf("the sequences [%d,%d) of stream %s are gone, and no sink has all of them", next+1, state.FirstSeq, s.config.Stream),
		Hint: fmt.Sprintf("the stream's limits removed them unread; raise the limits, and go on without them with: %s",
			source.SetPosition(s.env.Pipeline, partition, state.FirstSeq-1)),
	}
}

// same compares the last message that the sinks have with the stream's.
func (s *Source) same(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState, partition string, last event.Range) error {
	seq := last.End()
	if len(last.Prints) == 0 || seq < state.FirstSeq {
		return nil // nothing to compare
	}
	message, err := stream.GetMsg(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil // deleted by hand
	case err != nil:
		return fmt.Errorf("read message %d of stream %s: %w", seq, s.config.Stream, err)
	case crc32.Checksum(message.Data, castagnoli) != last.Prints[len(last.Prints)-1]:
		return s.older(partition, last.First, fmt.Errorf("message %d of stream %s is not the one that the sinks have", seq, s.config.Stream))
	}
	return nil
}

func (s *Source) older(partition string, at uint64, err error) error {
	return &event.PermanentError{
		Err: err,
		Hint: fmt.Sprintf("the stream was restored to an older state, and its numbers mean other messages now; see where it differs and go on from there, at most with: %s",
			source.SetPosition(s.env.Pipeline, partition, at)),
	}
}
