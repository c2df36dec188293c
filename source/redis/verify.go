package redis

import (
	"context"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

const compareItems = 1000 // in one request

// open takes up what the sinks have and compares it with what is there.
func (r *reader) open(ctx context.Context, done event.Ranges) error {
	if err := r.dial(ctx); err != nil {
		return err
	}
	now, err := r.look(ctx)
	if err != nil {
		return err
	}
	if now.state.generation != r.generation {
		return source.ErrMoved
	}
	if err := r.source.ours(r.key, now.state.pipeline); err != nil {
		return err
	}
	r.head, r.next, r.holes = now.state.head, now.state.head, now.holes
	if err := r.noGap(done, now); err != nil {
		return err
	}
	if now.base > r.head { // what lies before the generation is not ours
		done = with(done, event.Range{First: r.head, Count: now.base - r.head})
	}
	if done, err = r.compareAll(ctx, done, now); err != nil {
		return err
	}
	r.window = between(r.window, r.head, r.end)
	for _, known := range between(done, r.head, r.end) {
		r.acked.Add(event.Range{First: known.First, Count: known.Count})
	}
	r.next = max(r.first, between(done, r.head, r.end).Next(r.head))
	r.report(now)
	if r.next >= r.end {
		return r.finish(ctx)
	}
	return nil
}

// compareAll finds where the generation ends: where what is there differs from
// what the sinks have. It returns what is done.
func (r *reader) compareAll(ctx context.Context, done event.Ranges, now peek) (event.Ranges, error) {
	if now.gone != 0 {
		return r.compareRemains(ctx, done, now)
	}
	return with(done, now.holes...), r.compareFrom(ctx, done, now, now.state.head)
}

// compareFrom compares, if the first event that is there is at position first.
func (r *reader) compareFrom(ctx context.Context, done event.Ranges, now peek, first uint64) (err error) {
	now.gone = int(first - now.state.head)
	r.first, r.window = first, between(done, first, never)
	if w, ok := r.queue.(walker); ok {
		w.start(now)
	}
	r.end, err = r.differs(ctx)
	return err
}

// noGap refuses sinks that lack what was trimmed on their word.
func (r *reader) noGap(done event.Ranges, now peek) error {
	remembered := r.source.env.Remembered || len(done) > 0
	gaps := with(done, now.holes...).Missing(event.Range{First: now.base, Count: r.head - min(now.base, r.head)})
	if !remembered || len(gaps) == 0 {
		return nil
	}
	return &event.PermanentError{
		Err: fmt.Errorf("events %v of %s were acknowledged and are gone from Redis, but the sink does not have them",
			gaps[0], r.partition),
		Hint: "the sink's database is older than what is in Redis, or another one: bring the newer back; or, to go on without " +
			"those events, take all that is there now for new: " + r.beginAnew(),
	}
}

// beginAnew is the command by which a person declares every event to be new.
func (r *reader) beginAnew() string {
	return r.queue.anew(nextGeneration(r.generation, r.head), r.head)
}

// report says what a reader found, when it is not simply going on at the head.
func (r *reader) report(now peek) {
	r.setLag(now)
	var known uint64
	for _, w := range r.window {
		known += w.Count
	}
	if r.end != never {
		r.source.env.Log.Warn("Redis is not what it was: the sinks have events that it no longer holds, or holds others",
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
	return r.conn.WithContext(ctx, func() error { return r.queue.begin(r.conn) })
}

// connect makes a connection when there is none. What is behind a new one must
// still be what was read before.
func (r *reader) connect(ctx context.Context) error {
	if r.conn != nil {
		return nil
	}
	if err := r.dial(ctx); err != nil {
		return err
	}
	now, err := r.look(ctx)
	if err != nil {
		return err
	}
	// The last trim may have been done without an answer.
	if now.state.generation != r.generation || now.state.head < r.head || now.state.head > r.settled() {
		return source.ErrMoved
	}
	r.giveUp(now.state.head)
	if now.gone != r.gone || formatHoles(now.holes) != formatHoles(r.holes) {
		return source.ErrMoved
	}
	if w, ok := r.queue.(walker); ok {
		w.start(now)
	}
	end, err := r.differs(ctx)
	if err == nil && end != never {
		return source.ErrMoved
	}
	return err
}

// look reads the state and no event.
func (r *reader) look(ctx context.Context) (p peek, err error) {
	err = r.conn.WithContext(ctx, func() error {
		r.queue.ask(r.conn, 0, 0, 0, false)
		if err := r.conn.Flush(); err != nil {
			return err
		}
		if p, err = r.queue.answer(r.conn); err != nil {
			return err
		}
		for range p.items {
			if _, err := r.readPrint(0); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}

// differs compares what is known with what is there, and returns the first
// position where they differ, or never. A range without fingerprints is proved by
// one behind it: events come and go at the ends only.
func (r *reader) differs(ctx context.Context) (uint64, error) {
	unproved, at := uint64(never), r.first
	_, walks := r.queue.(walker)
	for _, known := range r.window {
		if walks && at < known.First {
			var err error
			if at, err = r.compare(ctx, event.Range{First: at, Count: known.First - at}); err != nil {
				return 0, err
			}
			if at < known.First {
				return r.endOfProof(ctx, unproved, known.First)
			}
		}
		if len(known.Prints) == 0 {
			unproved = min(unproved, known.First)
			if !walks {
				continue
			}
		}
		var err error
		if at, err = r.compare(ctx, known); err != nil {
			return 0, err
		}
		if at != known.First && len(known.Prints) > 0 {
			unproved = never
		}
		if at < known.End() {
			return r.endOfProof(ctx, unproved, at)
		}
	}
	return r.endOfProof(ctx, unproved, never)
}

// endOfProof returns end, if no event before it is both there and unproved.
func (r *reader) endOfProof(ctx context.Context, unproved, end uint64) (uint64, error) {
	if unproved == never {
		return end, nil
	}
	now, err := r.look(ctx)
	if err != nil {
		return 0, err
	}
	if r.first+uint64(now.length) <= unproved {
		return min(end, unproved), nil // none of them is there
	}
	return 0, &event.PermanentError{
		Err: fmt.Errorf("the sink has the events of %s from position %d on, but no longer their fingerprints, "+
			"and Redis still holds that position", r.partition, unproved),
		Hint: "Redis has gone back further than the sink remembers, or is another one: remove by hand what the sink has " +
			"from the front, if anything; then take the rest for new: " + r.beginAnew(),
	}
}

// compare returns the first position of known where something else is there or
// nothing, or the end of known. Without fingerprints, anything is right.
func (r *reader) compare(ctx context.Context, known event.Range) (at uint64, err error) {
	for at = known.First; at < known.End(); {
		n := min(known.End()-at, compareItems)
		var prints []uint32
		if len(known.Prints) > 0 {
			prints = known.Prints[at-known.First:][:n]
		}
		same := 0
		err := r.conn.WithContext(ctx, func() (err error) {
			same, err = r.compareSome(at, int(n), prints)
			return err
		})
		if err != nil {
			return 0, err
		}
		if w, ok := r.queue.(walker); ok {
			w.passed(at, at+uint64(same))
		}
		at += uint64(same)
		if same < int(n) {
			return at, nil
		}
	}
	return at, nil
}

// compareSome counts how many of n events from position first on have the
// fingerprints, up to the first that has not.
func (r *reader) compareSome(first uint64, n int, prints []uint32) (same int, err error) {
	r.queue.ask(r.conn, r.head, first, n, false)
	if err := r.conn.Flush(); err != nil {
		return 0, err
	}
	p, err := r.queue.answer(r.conn)
	if err != nil {
		return 0, err
	}
	if p.state.generation != r.generation || p.state.head != r.head {
		return 0, source.ErrMoved
	}
	for i := range p.items {
		print, err := r.readPrint(first + uint64(i))
		if err != nil {
			return 0, err
		}
		if same == i && (prints == nil || print == prints[i]) {
			same++
		}
	}
	return same, nil
}

// readPrint reads the event at a position and returns its fingerprint.
func (r *reader) readPrint(at uint64) (print uint32, err error) {
	if _, err = r.queue.size(r.conn); err != nil {
		return 0, err
	}
	r.scratch, print, err = r.queue.take(r.conn, r.scratch[:0], at)
	return print, err
}

// between returns the part of rs in [first, end), with fingerprints of its own.
func between(rs event.Ranges, first, end uint64) (part event.Ranges) {
	for _, r := range rs {
		from, to := max(r.First, first), min(r.End(), end)
		if from < to {
			r = r.Tail(from - r.First).Head(to - from)
			r.Prints = slices.Clone(r.Prints)
			part = append(part, r)
		}
	}
	return part
}

func printAt(rs event.Ranges, p uint64) (print uint32, known bool) {
	for _, r := range rs {
		if p >= r.First && p < r.End() && len(r.Prints) > 0 {
			return r.Prints[p-r.First], true
		}
	}
	return 0, false
}
