package redis

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

const compareItems = 1000 // in one request

// open takes up what the sinks have and compares it with what the list holds.
func (r *reader) open(ctx context.Context, done event.Ranges) (err error) {
	if r.conn, err = r.source.dial(ctx); err != nil {
		return err
	}
	now, err := r.look(ctx)
	if err != nil {
		return err
	}
	if now.state.generation != r.generation {
		return source.ErrMoved
	}
	if err := r.source.ours(now.state); err != nil {
		return err
	}
	r.head = now.state.head
	if err := r.noGap(done); err != nil {
		return err
	}
	r.window = between(done, r.head, never)
	if r.end, err = r.differs(ctx); err != nil {
		return err
	}
	r.window = between(r.window, r.head, r.end)
	for _, known := range r.window {
		r.acked.Add(event.Range{First: known.First, Count: known.Count})
	}
	r.next = r.window.Next(r.head)
	r.report(now)
	if r.next >= r.end {
		return r.finish(ctx)
	}
	return nil
}

// noGap refuses sinks that lack what was trimmed from the list on their word.
func (r *reader) noGap(done event.Ranges) error {
	remembered := r.source.env.Remembered || len(done) > 0
	gaps := done.Missing(event.Range{Count: r.head})
	if !remembered || len(gaps) == 0 {
		return nil
	}
	return &source.PermanentError{
		Err: fmt.Errorf("events %v of %s were acknowledged and are gone from the list, but the sink does not have them",
			gaps[0], r.partition),
		Hint: "the sink's database is older than the list, or another one: bring the newer back; or, to go on without " +
			"those events, take all that is in the list now for new: " + r.beginAnew(),
	}
}

// beginAnew is the command by which a person declares every item to be new.
func (r *reader) beginAnew() string {
	return fmt.Sprintf("redis-cli HSET %q generation %s head 0", r.source.state, nextGeneration(r.generation, r.head))
}

// report says what a reader found, when it is not simply going on at the head.
func (r *reader) report(now peek) {
	r.lag.Store(uint64(max(0, now.length-int(r.next-r.head))))
	var known uint64
	for _, w := range r.window {
		known += w.Count
	}
	if r.end != never {
		r.source.env.Log.Warn("the list is not what it was: the sinks have events that it no longer holds, or holds others",
			"partition", r.partition, "from position", r.end, "verified", known)
	} else if known > 0 {
		r.source.env.Log.Info("skipping events that the sinks already have", "partition", r.partition,
			"head", r.head, "verified", known)
	}
}

// connect makes a connection when there is none. The list behind a new one must
// still hold what was read from it before.
func (r *reader) connect(ctx context.Context) (err error) {
	if r.conn != nil {
		return nil
	}
	if r.conn, err = r.source.dial(ctx); err != nil {
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
	end, err := r.differs(ctx)
	if err == nil && end != never {
		return source.ErrMoved
	}
	return err
}

// look reads the state and no item.
func (r *reader) look(ctx context.Context) (p peek, err error) {
	err = r.conn.during(ctx, func() error {
		r.conn.askPeek(r.source, 0, 0)
		if err := r.conn.flush(); err != nil {
			return err
		}
		p, err = r.conn.readPeek()
		return err
	})
	return p, err
}

// differs compares what is known with the items in the list, and returns the
// first position where they differ, or never. A range without fingerprints is
// proved by one behind it: a list changes at its ends only.
func (r *reader) differs(ctx context.Context) (uint64, error) {
	unproved := uint64(never)
	for _, known := range r.window {
		if len(known.Prints) == 0 {
			unproved = min(unproved, known.First)
			continue
		}
		at, err := r.compare(ctx, known)
		if err != nil {
			return 0, err
		}
		if at != known.First {
			unproved = never
		}
		if at < known.End() {
			return r.endOfProof(ctx, unproved, at)
		}
	}
	return r.endOfProof(ctx, unproved, never)
}

// endOfProof returns end, if no item before it is both in the list and unproved.
func (r *reader) endOfProof(ctx context.Context, unproved, end uint64) (uint64, error) {
	if unproved == never {
		return end, nil
	}
	now, err := r.look(ctx)
	if err != nil {
		return 0, err
	}
	if r.head+uint64(now.length) <= unproved {
		return min(end, unproved), nil // none of them is there
	}
	return 0, &source.PermanentError{
		Err: fmt.Errorf("the sink has the events of %s from position %d on, but no longer their fingerprints, "+
			"and the list still holds that position", r.partition, unproved),
		Hint: "Redis has gone back further than the sink remembers, or is another one: remove by hand what the sink has " +
			"from the front of the list, if anything; then take the rest for new: " + r.beginAnew(),
	}
}

// compare returns the first position of known where the list has another item or
// none, or the end of known.
func (r *reader) compare(ctx context.Context, known event.Range) (at uint64, err error) {
	for at = known.First; at < known.End(); {
		n := min(known.End()-at, compareItems)
		same := 0
		err := r.conn.during(ctx, func() (err error) {
			same, err = r.compareSome(at, known.Prints[at-known.First:][:n])
			return err
		})
		if err != nil {
			return 0, err
		}
		at += uint64(same)
		if same < int(n) {
			return at, nil
		}
	}
	return at, nil
}

// compareSome counts how many of prints, from position first on, are those of
// the list's items, up to the first that is not.
func (r *reader) compareSome(first uint64, prints []uint32) (same int, err error) {
	from := int(first - r.head)
	r.conn.askPeek(r.source, from, from+len(prints))
	if err := r.conn.flush(); err != nil {
		return 0, err
	}
	p, err := r.conn.readPeek()
	if err != nil {
		return 0, err
	}
	if p.state.generation != r.generation || p.state.head != r.head {
		return 0, source.ErrMoved
	}
	for i := range p.items {
		print, err := r.readPrint()
		if err != nil {
			return 0, err
		}
		if same == i && print == prints[i] {
			same++
		}
	}
	return same, nil
}

// readPrint reads one item and returns its fingerprint.
func (r *reader) readPrint() (print uint32, err error) {
	size, err := r.conn.number('$')
	if err != nil {
		return 0, err
	}
	r.scratch, err = r.conn.body(r.scratch[:0], size)
	return crc32.Checksum(r.scratch, castagnoli), err
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
