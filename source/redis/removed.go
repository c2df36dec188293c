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

//go:embed stream_lost.lua
var streamLostScript string

// findEndAfterRemoval is findEnd for a stream from which others removed entries: an XADD
// with MAXLEN or an XTRIM at the front, an XDEL anywhere. No event is lost if the sinks
// have all of them. Otherwise the setting "lost" decides whether the pipeline stops. It
// returns done with the positions whose events are lost.
func (r *reader) findEndAfterRemoval(ctx context.Context, done event.Ranges, now snapshot) (event.Ranges, error) {
	r.removed, r.first = now.removed, r.head
	if now.removed < 0 {
		r.queue.(*streamQueue).startWalk(now) // it was deleted and created again
		r.end = r.head
		return nil, nil
	}
	front := event.Range{First: r.head, Count: uint64(now.removed)}
	if err := r.compareFrom(ctx, done, now, front.End()); err != nil {
		return nil, err
	}
	if r.end != noEnd && !r.anyVerified() {
		// Not all of them were removed from the front.
		if err := r.compareFrom(ctx, done, now, r.head); err != nil {
			return nil, err
		}
		if r.end == noEnd || r.anyVerified() {
			return r.acceptLoss(ctx, done, now, event.Range{}, front.Count)
		}
		if err := r.compareFrom(ctx, done, now, front.End()); err != nil {
			return nil, err
		}
		if known := clip(done, r.head, front.End()); len(known) > 0 {
			// Nothing proves that the removed entries are those that the sinks committed.
			r.end = known[0].First
			gap := event.Range{First: r.head, Count: r.end - r.head}
			return r.acceptLoss(ctx, done, now, gap, front.Count-gap.Count)
		}
	}
	return r.acceptLoss(ctx, done, now, front, 0)
}

// anyVerified reports whether an event with a known fingerprint was found in its place.
func (r *reader) anyVerified() bool {
	return slices.ContainsFunc(clip(r.known, r.first, r.end), func(known event.Range) bool { return len(known.Fingerprints) > 0 })
}

// acceptLoss records lost events, if the setting "lost" allows it: those at known
// positions, which stay empty so that later events keep their positions, and a number of
// events that never got a position.
func (r *reader) acceptLoss(ctx context.Context, done event.Ranges, now snapshot, front event.Range, unplaced uint64) (event.Ranges, error) {
	done = union(done, now.holes...)
	holes, lost := done.Missing(front), unplaced
	for _, h := range holes {
		lost += h.Count
		now.holes.Add(h)
	}
	if lost == 0 {
		return done, nil
	}
	if r.source.config.Lost != lostReport {
		return nil, &event.PermanentError{
			Err: fmt.Errorf("%d events of %s at or after position %d were removed from the stream before a sink had them",
				lost, r.partition, done.Next(r.head)),
			Hint: fmt.Sprintf("a MAXLEN or an XDEL of another client removed them: let the stream grow longer; to continue without them, "+
				"set lost: report, which counts them in the field lost of %q", stateKey(r.key)),
		}
	}
	err := r.conn.WithContext(ctx, func() error {
		r.conn.QueueEval(streamLostScript, []string{stateKey(r.key)}, r.generation, strconv.FormatUint(r.head, 10), strconv.FormatUint(lost, 10),
			formatHoles(now.holes), strconv.FormatUint(unplaced, 10))
		if err := r.conn.Flush(); err != nil {
			return err
		}
		return readTrimDone(r.conn)
	})
	if err != nil {
		return nil, err
	}
	r.source.env.Log.Error("events were removed from the stream before a sink had them: continuing without them",
		"stream", r.key, "lost", lost, "from position", done.Next(r.head))
	r.removed -= int(unplaced)
	r.holes = now.holes
	return union(done, holes...), nil
}

// union returns done with more ranges added.
func union(done event.Ranges, more ...event.Range) event.Ranges {
	done = slices.Clone(done)
	for _, r := range more {
		done.Add(r)
	}
	return done
}

// holesMax bounds the number of holes. When there are more, the older ones are merged
// with everything between them.
const holesMax = 1000

func formatHoles(holes event.Ranges) string {
	if n := len(holes) - holesMax/2; n > holesMax/2 {
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
			return nil, invalidState("holes", text)
		}
		holes.Add(event.Range{First: first, Count: end - first})
	}
	return holes, nil
}
