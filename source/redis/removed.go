package redis

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// compareRemains compares a stream of which somebody else has removed entries: an
// XADD with MAXLEN or an XTRIM from the front, an XDEL anywhere. Nothing is lost
// when the sinks have them all. Otherwise the pipeline stops, or goes on in a new
// generation, as it is set up.
func (r *reader) compareRemains(ctx context.Context, done event.Ranges, now peek) error {
	s := r.queue.(*stream)
	r.gone, r.first = now.gone, r.head
	if now.gone < 0 {
		s.start(now) // it was deleted and made anew
		r.end = r.head
		return nil
	}
	front := event.Range{First: r.head, Count: uint64(now.gone)}
	if err := r.compareFrom(ctx, done, now, front.End()); err != nil {
		return err
	}
	var lost uint64
	for _, gap := range done.Missing(front) {
		lost += gap.Count
	}
	if r.end != never { // they were not removed from the front, or not all of them
		if err := r.compareFrom(ctx, done, now, r.head); err != nil {
			return err
		}
		lost = front.Count
	}
	if lost == 0 {
		return nil
	}
	if r.source.config.Lost != reportLost {
		return &source.PermanentError{
			Err: fmt.Errorf("%d events of %s at or behind position %d were removed from the stream before any sink had them",
				lost, r.partition, done.Next(r.head)),
			Hint: fmt.Sprintf("a MAXLEN or an XDEL of somebody else took them: give the stream more room; to go on without them, "+
				"set lost: report, which counts them in the field lost of %q", s.state),
		}
	}
	return r.goOnWithout(ctx, done, lost, now)
}

// goOnWithout begins a new generation behind a loss. What the sinks have of the
// old one is given up first, so that it does not come again under new positions.
func (r *reader) goOnWithout(ctx context.Context, done event.Ranges, lost uint64, now peek) error {
	s := r.queue.(*stream)
	now.gone = int(r.first - r.head)
	s.start(now)
	s.all = true
	if _, err := r.differs(ctx); err != nil {
		return err
	}
	t := trim{to: min(done.Next(r.head), r.end), lost: lost}
	for _, m := range s.ids {
		if m.end > t.to && done.Has(m.end-1) && m.end > r.first {
			t.also = append(t.also, m.id)
		}
	}
	if s.keep && len(t.also) > 0 {
		return &source.PermanentError{
			Err: fmt.Errorf("%d events of %s were removed from the stream before any sink had them, and %d behind them are already in the sinks",
				lost, r.partition, len(t.also)),
			Hint: "let the sink catch up once with trim: true, which may delete what it has",
		}
	}
	r.source.env.Log.Error("events were removed from the stream before any sink had them: going on without them",
		"stream", r.key, "lost", lost, "from position", t.to)
	return r.begin(ctx, t)
}
