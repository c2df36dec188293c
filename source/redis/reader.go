package redis

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

const (
	// What is empty is looked at again after a millisecond, then less and less
	// often. Redis has no blocking command that takes nothing: BLMOVE from a list
	// to itself comes close, but it wakes only when the list is wholly empty, and
	// ours still holds what is not yet durable. A look costs both sides about
	// 30 µs, so at 20 ms a waiting pipeline is next to idle.
	pollLeast = time.Millisecond
	pollMost  = 20 * time.Millisecond

	never        = math.MaxUint64
	averageGuess = 4 << 10 // bytes of an event, before any was seen
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A reader reads one generation of a key. It keeps one connection, on which the
// next events are asked for as soon as the last have been read, together with the
// trim of what became durable meanwhile; so acknowledgements cost no round trip
// of their own and no goroutine.
//
// Read and Close own all fields but lag and those below mu.
type reader struct {
	source     *Source
	key        string
	partition  string
	generation string
	queue      queue

	conn   *resp.Conn   // nil when there is none
	moved  bool         // the partition is no longer what it was
	head   uint64       // up to which everything was given up
	first  uint64       // event that is there: head, but where somebody else has removed some
	gone   int          // of a stream: what the last look told of those
	holes  event.Ranges // of a stream: what the state then told of those that are lost
	next   uint64       // position to read
	end    uint64       // where the generation ends, or never
	window event.Ranges // at or above first, and read or known to be in the sinks; with fingerprints

	request        // sent and not yet answered
	left    int    // events of the answer that were not yet read
	size    int    // of the first of them, when left > 0 and it is known; else -1
	full    bool   // whether the answer had all events that were asked for
	average int    // bytes of an event
	scratch []byte // an event to compare
	lag     atomic.Uint64

	mu    sync.Mutex
	acked event.Ranges // at or above head, without fingerprints
}

// A request is what the next answer must be held against.
type request struct {
	items    int    // asked for; 0 when nothing was
	trim     uint64 // events that are given up before
	anchored bool   // the first event is the last that was read before
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.partition
	reloaded := false
	for wait := pollLeast; ; wait = min(2*wait, pollMost) {
		if err := r.fill(ctx, b); err != nil {
			b.Reset()
			if forgotten(err) && !reloaded {
				reloaded = true
				r.disconnect() // the next connection loads the scripts
				continue
			}
			return r.failed("read", err)
		}
		if b.Len() > 0 {
			return nil
		}
		if r.source.config.UntilEmpty && r.next < r.end {
			return io.EOF
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// failed gives the connection up: the rest of an answer may be on it.
func (r *reader) failed(doing string, err error) error {
	r.disconnect()
	r.moved = r.moved || errors.Is(err, source.ErrMoved)
	return r.source.explain(doing, &keyError{r.key, err})
}

// fill reads what there is into b, which stays empty when there is nothing.
func (r *reader) fill(ctx context.Context, b *event.Batch) error {
	if r.moved {
		return source.ErrMoved
	}
	if err := r.connect(ctx); err != nil {
		return err
	}
	if r.next >= r.end {
		return r.finish(ctx)
	}
	err := r.conn.WithContext(ctx, func() error {
		if r.left == 0 {
			if err := r.answer(); err != nil {
				return err
			}
		}
		return r.take(b)
	})
	if err != nil || b.Len() == 0 {
		return err
	}
	r.advance(b)
	if r.left == 0 && r.full && r.next < r.end {
		// The answer comes while this batch is worked on. The batch stands even
		// when there will be none.
		if r.ask() != nil {
			r.disconnect()
		}
	}
	return nil
}

// ask sends the trim of what is durable and the request for the next events.
func (r *reader) ask() error {
	r.request = request{trim: r.reachable() - r.head, items: r.room()}
	head := r.head + r.trim
	if r.trim > 0 {
		r.queue.askAdvance(r.conn, trim{was: r.state(), to: head})
	}
	r.anchored = r.next > max(r.first, head)
	r.queue.ask(r.conn, head, r.next, r.items, r.anchored)
	return r.conn.Flush()
}

func (r *reader) state() state { return state{generation: r.generation, head: r.head} }

// room is how many events the next request asks for: no more than a batch holds,
// nor past what is known already.
func (r *reader) room() int {
	limits := r.source.env.Limits
	n := min(limits.Events, max(1, limits.Bytes/r.average))
	wanted := event.Range{First: r.next, Count: min(uint64(n), r.end-r.next)}
	return int(r.window.Missing(wanted)[0].Count) // next itself is missing
}

// answer reads the reply to what was asked, up to the first new event.
func (r *reader) answer() error {
	if r.items == 0 {
		if err := r.ask(); err != nil {
			return err
		}
	}
	asked := r.request
	r.request = request{}
	if asked.trim > 0 {
		if err := r.queue.readAdvance(r.conn); err != nil {
			return err
		}
		r.giveUp(r.head + asked.trim)
	}
	p, err := r.queue.answer(r.conn)
	if err != nil {
		return err
	}
	if p.state.generation != r.generation || p.state.head != r.head {
		return source.ErrMoved
	}
	if asked.anchored {
		if err := r.anchor(&p); err != nil {
			return err
		}
	} else if p.gone != r.gone {
		return source.ErrMoved
	}
	r.left, r.size, r.full = p.items, -1, p.items == asked.items
	r.setLag(p)
	return nil
}

func (r *reader) setLag(p peek) {
	r.lag.Store(uint64(max(0, p.length-int(r.next-min(r.next, r.first)))))
}

// anchor makes sure that the event before the new ones is the one that was read
// there: otherwise somebody else has taken or put events in front.
func (r *reader) anchor(p *peek) error {
	if p.items == 0 {
		return source.ErrMoved
	}
	p.items--
	print, err := r.readPrint(r.next - 1)
	if err != nil {
		return err
	}
	if want, known := printAt(r.window, r.next-1); known && print != want {
		r.source.env.Log.Warn("somebody else has changed the front", "key", r.key, "position", r.next-1)
		return source.ErrMoved
	}
	return nil
}

// take reads events into b, as many as fit.
func (r *reader) take(b *event.Batch) (err error) {
	limits := r.source.env.Limits
	for r.left > 0 && b.Len() < limits.Events {
		if r.size < 0 {
			if r.size, err = r.queue.size(r.conn); err != nil {
				return err
			}
		}
		start := len(b.Data)
		if start > 0 && start+r.size > limits.Bytes {
			break
		}
		var print uint32
		if b.Data, print, err = r.queue.take(r.conn, b.Data, r.next+uint64(b.Len())); err != nil {
			return err
		}
		b.Ends = append(b.Ends, uint32(len(b.Data)))
		b.Range.Prints = append(b.Range.Prints, print)
		r.left, r.size = r.left-1, -1
	}
	return nil
}

// advance gives b its range and moves past it, and past what follows and is known.
func (r *reader) advance(b *event.Batch) {
	before, n := r.next, b.Len()
	b.Range.First, b.Range.Count = before, uint64(n)
	r.average = max(1, (3*r.average+len(b.Data)/n)/4)
	r.window.Add(event.Range{First: before, Count: uint64(n), Prints: slices.Clone(b.Range.Prints)})
	r.next = r.window.Next(before)
	r.lag.Store(r.lag.Load() - min(r.lag.Load(), r.next-before))
}

// finish begins the next generation once the sinks have all of this one.
func (r *reader) finish(ctx context.Context) error {
	if r.settled() < r.end {
		return nil
	}
	t := trim{to: r.end, generation: nextGeneration(r.generation, r.end)}
	if err := r.giveBack(ctx, t); err != nil {
		return err
	}
	r.source.env.Log.Warn("a new generation has begun", "was", r.partition, "until", t.to,
		"now", partitionName(r.key, t.generation))
	return source.ErrMoved
}

// Ack implements source.Reader. The next Read passes it on, or Close.
func (r *reader) Ack(_ context.Context, done event.Range) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked.Add(event.Range{First: done.First, Count: done.Count})
	return nil
}

// settled is the position up to which everything is durable.
func (r *reader) settled() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.acked.Next(r.head), r.next)
}

// reachable is the position up to which can be trimmed.
func (r *reader) reachable() uint64 {
	settled := r.settled()
	if w, ok := r.queue.(walker); ok {
		settled = w.reachable(settled)
	}
	return max(settled, r.head)
}

// giveUp follows the head.
func (r *reader) giveUp(head uint64) {
	if head > r.head {
		r.gone = 0
	}
	r.head, r.first = head, max(r.first, head)
	r.window = between(r.window, head, never)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = between(r.acked, head, never)
}

// Close implements source.Reader. It trims over a connection of its own: the
// reader's may have half an answer on it, or be broken and not know.
func (r *reader) Close(ctx context.Context) error {
	r.disconnect()
	defer r.disconnect()
	if r.moved || r.settled() == r.head {
		return nil
	}
	err := r.connect(ctx)
	if err == nil && r.reachable() > r.head {
		err = r.giveBack(ctx, trim{to: r.reachable()})
	}
	if errors.Is(err, source.ErrMoved) {
		return nil // the sinks know what is done; the next reader compares
	}
	if err != nil {
		return r.source.explain("trim", &keyError{r.key, err})
	}
	return nil
}

// giveBack gives up what t says, and waits for it.
func (r *reader) giveBack(ctx context.Context, t trim) error {
	t.was = r.state()
	return r.conn.WithContext(ctx, func() error {
		r.queue.askAdvance(r.conn, t)
		if err := r.conn.Flush(); err != nil {
			return err
		}
		return r.queue.readAdvance(r.conn)
	})
}

func (r *reader) disconnect() {
	if r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
	r.request, r.left = request{}, 0
}

// Lag implements source.Reader.
func (r *reader) Lag() uint64 { return r.lag.Load() }
