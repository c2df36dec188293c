package redis

import (
	"context"
	_ "embed" // the script
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
)

//go:embed stream_lose.lua
var streamLose string

// compareRemains compares a stream of which somebody else has removed entries: an
// XADD with MAXLEN or an XTRIM from the front, an XDEL anywhere. Nothing is lost
// when the sinks have them all. Otherwise the pipeline stops or goes on, as it is
// set up. It returns what is done with the positions that will never be filled.
func (r *reader) compareRemains(ctx context.Context, done event.Ranges, now peek) (event.Ranges, error) {
	r.gone, r.first = now.gone, r.head
	if now.gone < 0 {
		r.queue.(*stream).start(now) // it was deleted and made anew
		r.end = r.head
		return nil, nil
	}
	front := event.Range{First: r.head, Count: uint64(now.gone)}
	if err := r.compareFrom(ctx, done, now, front.End()); err != nil {
		return nil, err
	}
	if r.end != never && !r.verified() {
		// They were not removed from the front, or not all of them.
		if err := r.compareFrom(ctx, done, now, r.head); err != nil {
			return nil, err
		}
		if r.end == never || r.verified() {
			return r.lose(ctx, done, now, event.Range{}, front.Count)
		}
		if err := r.compareFrom(ctx, done, now, front.End()); err != nil {
			return nil, err
		}
		if known := between(done, r.head, front.End()); len(known) > 0 {
			// Nothing proves that what was removed is what the sinks have there.
			r.end = known[0].First
			gap := event.Range{First: r.head, Count: r.end - r.head}
			return r.lose(ctx, done, now, gap, front.Count-gap.Count)
		}
	}
	return r.lose(ctx, done, now, front, 0)
}

// verified tells whether something was found where it should be.
func (r *reader) verified() bool {
	return slices.ContainsFunc(between(r.window, r.first, r.end), func(known event.Range) bool { return len(known.Prints) > 0 })
}

// lose accepts a loss, if that is wanted: of known positions, which stay empty, so
// that those behind keep their meaning, and of events that never had one.
func (r *reader) lose(ctx context.Context, done event.Ranges, now peek, front event.Range, nowhere uint64) (event.Ranges, error) {
	done = with(done, now.holes...)
	holes, lost := done.Missing(front), nowhere
	for _, h := range holes {
		lost += h.Count
		now.holes.Add(h)
	}
	if lost == 0 {
		return done, nil
	}
	if r.source.config.Lost != reportLost {
		return nil, &event.PermanentError{
			Err: fmt.Errorf("%d events of %s at or behind position %d were removed from the stream before any sink had them",
				lost, r.partition, done.Next(r.head)),
			Hint: fmt.Sprintf("a MAXLEN or an XDEL of somebody else took them: give the stream more room; to go on without them, "+
				"set lost: report, which counts them in the field lost of %q", stateKey(r.key)),
		}
	}
	err := r.conn.WithContext(ctx, func() error {
		r.conn.QueueEval(streamLose, []string{stateKey(r.key)}, r.generation, strconv.FormatUint(r.head, 10), strconv.FormatUint(lost, 10),
			formatHoles(now.holes), strconv.FormatUint(nowhere, 10))
		if err := r.conn.Flush(); err != nil {
			return err
		}
		return readDone(r.conn)
	})
	if err != nil {
		return nil, err
	}
	r.source.env.Log.Error("events were removed from the stream before any sink had them: going on without them",
		"stream", r.key, "lost", lost, "from position", done.Next(r.head))
	r.gone -= int(nowhere)
	r.holes = now.holes
	return with(done, holes...), nil
}

// with returns a set with more ranges in it.
func with(done event.Ranges, more ...event.Range) event.Ranges {
	done = slices.Clone(done)
	for _, r := range more {
		done.Add(r)
	}
	return done
}

// mostHoles is how many are told apart; of more, the older ones are taken as one
// with what lies between.
const mostHoles = 1000

func formatHoles(holes event.Ranges) string {
	if n := len(holes) - mostHoles/2; n > mostHoles/2 {
		holes = append(event.Ranges{{Count: holes[n-1].End()}}, holes[n:]...)
	}
	var b strings.Builder
	for _, h := range holes {
		fmt.Fprintf(&b, "%d-%d ", h.First, h.End())
	}
	return b.String()
}

func parseHoles(text string) (holes event.Ranges, err error) {
	for word := range strings.FieldsSeq(text) {
		var first, end uint64
		if _, err := fmt.Sscanf(word, "%d-%d", &first, &end); err != nil || end < first {
			return nil, &event.PermanentError{
				Err:  fmt.Errorf("the state has holes %q, which are no positions", text),
				Hint: "somebody has written to the key that ends in " + stateSuffix + "; restore it",
			}
		}
		holes.Add(event.Range{First: first, Count: end - first})
	}
	return holes, nil
}
