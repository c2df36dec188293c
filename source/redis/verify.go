package redis

import (
	"context"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

const compareEvents = 1000 // compared by one request

// verifyDone compares what the sinks committed with what Redis has, and finds where to
// start reading.
func (r *reader) verifyDone(ctx context.Context, done event.Ranges) error {
	if err := r.dial(ctx); err != nil {
		return err
	}
	now, err := r.readState(ctx)
	if err != nil {
		return err
	}
	if now.state.generation != r.generation {
		return source.ErrMoved
	}
	if err := r.source.checkPipeline(r.key, now.state.pipeline); err != nil {
		return err
	}
	r.head, r.next, r.holes = now.state.head, now.state.head, now.holes
	if err := r.checkGap(done, now); err != nil {
		return err
	}
	if now.base > r.head { // events before the generation are not read
		done = union(done, event.Range{First: r.head, Count: now.base - r.head})
	}
	if done, err = r.findEnd(ctx, done, now); err != nil {
		return err
	}
	r.known = clip(r.known, r.head, r.end)
	for _, known := range clip(done, r.head, r.end) {
		r.acked.Add(event.Range{First: known.First, Count: known.Count})
	}
	r.next = max(r.first, clip(done, r.head, r.end).Next(r.head))
	r.logOpened(now)
	if r.next >= r.end {
		return r.startNextGeneration(ctx)
	}
	return nil
}

// findEnd finds where the generation ends, which is the first event that differs from
// what the sinks committed. It returns done with the holes of the state.
func (r *reader) findEnd(ctx context.Context, done event.Ranges, now snapshot) (event.Ranges, error) {
	if now.removed != 0 {
		return r.findEndAfterRemoval(ctx, done, now)
	}
	return union(done, now.holes...), r.compareFrom(ctx, done, now, now.state.head)
}

// compareFrom finds the end if the first event in Redis is at position first.
func (r *reader) compareFrom(ctx context.Context, done event.Ranges, now snapshot, first uint64) (err error) {
	now.removed = int(first - now.state.head)
	r.first, r.known = first, clip(done, first, noEnd)
	if w, ok := r.queue.(walker); ok {
		w.startWalk(now)
	}
	r.end, err = r.findDifference(ctx)
	return err
}

// checkGap returns an error when sinks lack events that were trimmed because they had
// acknowledged them.
func (r *reader) checkGap(done event.Ranges, now snapshot) error {
	remembered := r.source.env.Remembered || len(done) > 0
	gaps := union(done, now.holes...).Missing(event.Range{First: now.base, Count: r.head - min(now.base, r.head)})
	if !remembered || len(gaps) == 0 {
		return nil
	}
	return &event.PermanentError{
		Err: fmt.Errorf("events %v of %s were acknowledged and trimmed from Redis, but the sink does not have them",
			gaps[0], r.partition),
		Hint: "the sink's database is older than Redis, or another one: restore the newer one; or, to skip " +
			"those events and read all others as new ones: " + r.resetCommand(),
	}
}

// resetCommand returns the command with which a person makes all events new ones.
func (r *reader) resetCommand() string {
	return r.queue.resetCommand(nextGeneration(r.generation, r.head), r.head)
}

// logOpened logs what the reader found unless it simply continues at the head.
func (r *reader) logOpened(now snapshot) {
	r.updateLag(now)
	var known uint64
	for _, w := range r.known {
		known += w.Count
	}
	if r.end != noEnd {
		r.source.env.Log.Warn("Redis was set back: the sinks have events that it does not have, or that differ",
			"partition", r.partition, "from position", r.end, "verified", known)
	} else if known > 0 {
		r.source.env.Log.Info("skipping events that the sinks already have", "partition", r.partition,
			"head", r.head, "verified", known)
	}
}

// dial makes a connection.
func (r *reader) dial(ctx context.Context) (err error) {
	if r.conn, err = r.source.server.Dial(ctx); err != nil {
		return err
	}
	return r.conn.WithContext(ctx, func() error { return r.queue.prepare(r.conn) })
}

// ensureConnected connects unless there is a connection. After a reconnect it checks that
// Redis still has what was read before.
func (r *reader) ensureConnected(ctx context.Context) error {
	if r.conn != nil {
		return nil
	}
	if err := r.dial(ctx); err != nil {
		return err
	}
	now, err := r.readState(ctx)
	if err != nil {
		return err
	}
	// The last trim may have succeeded without a reply.
	if now.state.generation != r.generation || now.state.head < r.head || now.state.head > r.ackedTo() {
		return source.ErrMoved
	}
	r.setHead(now.state.head)
	if now.removed != r.removed || formatHoles(now.holes) != formatHoles(r.holes) {
		return source.ErrMoved
	}
	if w, ok := r.queue.(walker); ok {
		w.startWalk(now)
	}
	end, err := r.findDifference(ctx)
	if err == nil && end != noEnd {
		return source.ErrMoved
	}
	return err
}

// readState reads the state, and no event.
func (r *reader) readState(ctx context.Context) (p snapshot, err error) {
	err = r.conn.WithContext(ctx, func() error {
		r.queue.queueRead(r.conn, 0, 0, 0, false)
		if err := r.conn.Flush(); err != nil {
			return err
		}
		if p, err = r.queue.readSnapshot(r.conn); err != nil {
			return err
		}
		for range p.items {
			if _, err := r.readFingerprint(0); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}

// findDifference compares the known events with those in Redis and returns the first
// position where they differ, or noEnd. A range without fingerprints is proven by an
// equal one after it, because events come and go at the ends only.
func (r *reader) findDifference(ctx context.Context) (uint64, error) {
	unproven, at := uint64(noEnd), r.first
	_, walks := r.queue.(walker)
	for _, known := range r.known {
		if walks && at < known.First {
			var err error
			if at, err = r.compareRange(ctx, event.Range{First: at, Count: known.First - at}); err != nil {
				return 0, err
			}
			if at < known.First {
				return r.checkUnproven(ctx, unproven, known.First)
			}
		}
		if len(known.Fingerprints) == 0 {
			unproven = min(unproven, known.First)
			if !walks {
				continue
			}
		}
		var err error
		if at, err = r.compareRange(ctx, known); err != nil {
			return 0, err
		}
		if at != known.First && len(known.Fingerprints) > 0 {
			unproven = noEnd
		}
		if at < known.End() {
			return r.checkUnproven(ctx, unproven, at)
		}
	}
	return r.checkUnproven(ctx, unproven, noEnd)
}

// checkUnproven returns end if Redis has no event before it that is not proven.
func (r *reader) checkUnproven(ctx context.Context, unproven, end uint64) (uint64, error) {
	if unproven == noEnd {
		return end, nil
	}
	now, err := r.readState(ctx)
	if err != nil {
		return 0, err
	}
	if r.first+uint64(now.length) <= unproven {
		return min(end, unproven), nil // Redis has none of them
	}
	return 0, &event.PermanentError{
		Err: fmt.Errorf("the sink has the events of %s from position %d on, but no longer their fingerprints, "+
			"and Redis still has that position", r.partition, unproven),
		Hint: "Redis was set back further than the sink's fingerprints reach, or is another one: remove the events that the sink has " +
			"from the front by hand, if there are any; then read the rest as new ones: " + r.resetCommand(),
	}
}

// compareRange returns the first position of known that Redis lacks or that differs, or
// the end of known. Without fingerprints any event counts as equal.
func (r *reader) compareRange(ctx context.Context, known event.Range) (at uint64, err error) {
	for at = known.First; at < known.End(); {
		n := min(known.End()-at, compareEvents)
		var fingerprints []uint32
		if len(known.Fingerprints) > 0 {
			fingerprints = known.Fingerprints[at-known.First:][:n]
		}
		same := 0
		err := r.conn.WithContext(ctx, func() (err error) {
			same, err = r.compareChunk(at, int(n), fingerprints)
			return err
		})
		if err != nil {
			return 0, err
		}
		if w, ok := r.queue.(walker); ok {
			w.dropMarks(at, at+uint64(same))
		}
		at += uint64(same)
		if same < int(n) {
			return at, nil
		}
	}
	return at, nil
}

// compareChunk counts how many of n events from position first on have these
// fingerprints, up to the first that differs.
func (r *reader) compareChunk(first uint64, n int, fingerprints []uint32) (same int, err error) {
	r.queue.queueRead(r.conn, r.head, first, n, false)
	if err := r.conn.Flush(); err != nil {
		return 0, err
	}
	p, err := r.queue.readSnapshot(r.conn)
	if err != nil {
		return 0, err
	}
	if p.state.generation != r.generation || p.state.head != r.head {
		return 0, source.ErrMoved
	}
	for i := range p.items {
		fingerprint, err := r.readFingerprint(first + uint64(i))
		if err != nil {
			return 0, err
		}
		if same == i && (fingerprints == nil || fingerprint == fingerprints[i]) {
			same++
		}
	}
	return same, nil
}

// readFingerprint reads the event at a position and returns its fingerprint.
func (r *reader) readFingerprint(at uint64) (fingerprint uint32, err error) {
	if _, err = r.queue.nextSize(r.conn); err != nil {
		return 0, err
	}
	r.scratch, fingerprint, err = r.queue.appendEvent(r.conn, r.scratch[:0], at)
	return fingerprint, err
}

// clip returns the part of rs in [first, end), with a copy of its fingerprints.
func clip(rs event.Ranges, first, end uint64) (part event.Ranges) {
	for _, r := range rs {
		from, to := max(r.First, first), min(r.End(), end)
		if from < to {
			r = r.Tail(from - r.First).Head(to - from)
			r.Fingerprints = slices.Clone(r.Fingerprints)
			part = append(part, r)
		}
	}
	return part
}

func fingerprintAt(rs event.Ranges, p uint64) (fingerprint uint32, known bool) {
	for _, r := range rs {
		if p >= r.First && p < r.End() && len(r.Fingerprints) > 0 {
			return r.Fingerprints[p-r.First], true
		}
	}
	return 0, false
}
