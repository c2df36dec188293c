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
	"github.com/perigeedb/perigee/source/format"
)

const (
	// An empty key is polled after a millisecond, then less and less often. Redis has
	// no blocking command that removes nothing: BLMOVE from a list to itself comes
	// close, but it blocks only while the list is empty, and ours still has the events
	// that are not yet durable. A poll costs both sides about 30 µs, so at 20 ms a
	// waiting pipeline is nearly idle.
	pollMin = time.Millisecond
	pollMax = 20 * time.Millisecond

	noEnd          = math.MaxUint64
	initialAverage = 4 << 10 // bytes of an event, before the first one was read
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A reader reads one generation of a key. It keeps one connection. As soon as it has read
// the last events it requests the next ones, together with a trim of those that were
// acknowledged meanwhile, so acknowledgements cost neither a round trip nor a goroutine.
//
// Read and Close own all fields except lag and those below mu.
type reader struct {
	source     *Source
	key        string
	partition  string
	generation string
	queue      queue

	conn    *resp.Conn   // nil when there is none
	moved   bool         // source.ErrMoved was returned
	head    uint64       // everything before it was trimmed
	first   uint64       // position of the first event in Redis: head, unless others removed some
	removed int          // of a stream: how many others removed, as of the last read of the state
	holes   event.Ranges // of a stream: the holes as of then
	next    uint64       // position to read
	end     uint64       // where the generation ends, or noEnd
	known   event.Ranges // at or above first, and read or known to be in the sinks; with fingerprints

	request      // sent, without a reply yet
	left    int  // events of the reply that were not yet read
	size    int  // of the first of them if it is known, or -1
	full    bool // the reply had all requested events
	average int  // bytes of an event
	decoder *format.Decoder
	broken  []int  // events of the batch that say why there is none
	scratch []byte // for an event to compare
	lag     atomic.Uint64

	mu    sync.Mutex
	acked event.Ranges // at or after head, without fingerprints
}

// A request is what the next reply answers.
type request struct {
	items    int    // requested events; 0 without a request
	trim     uint64 // events trimmed before the read
	anchored bool   // the first event repeats the last one that was read
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.partition
	reloaded := false
	for wait := pollMin; ; wait = min(2*wait, pollMax) {
		if err := r.readBatch(ctx, b); err != nil {
			b.Reset()
			if isNoScript(err) && !reloaded {
				reloaded = true
				r.disconnect() // a new connection loads the scripts
				continue
			}
			return r.fail("read", err)
		}
		if b.Len() > 0 {
			r.decoder.Decode(b, r.broken...)
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

// fail closes the connection, which may have the rest of a reply on it.
func (r *reader) fail(doing string, err error) error {
	r.disconnect()
	r.moved = r.moved || errors.Is(err, source.ErrMoved)
	return r.source.wrapError(doing, &keyError{r.key, err})
}

// readBatch reads the available events into b, which stays empty if there are none.
func (r *reader) readBatch(ctx context.Context, b *event.Batch) error {
	if r.moved {
		return source.ErrMoved
	}
	if err := r.ensureConnected(ctx); err != nil {
		return err
	}
	if r.next >= r.end {
		return r.startNextGeneration(ctx)
	}
	err := r.conn.WithContext(ctx, func() error {
		if r.left == 0 {
			if err := r.readResponse(); err != nil {
				return err
			}
		}
		return r.appendEvents(b)
	})
	if err != nil || b.Len() == 0 {
		return err
	}
	r.finishBatch(b)
	if r.left == 0 && r.full && r.next < r.end {
		// The reply arrives while the pipeline works on this batch. An error concerns
		// the next read only.
		if r.sendRequest() != nil {
			r.disconnect()
		}
	}
	return nil
}

// sendRequest sends a trim of what was acknowledged and a read of the next events.
func (r *reader) sendRequest() error {
	r.request = request{trim: r.trimTo() - r.head, items: r.requestSize()}
	head := r.head + r.trim
	if r.trim > 0 {
		r.queue.queueTrim(r.conn, trim{expected: r.expectedState(), to: head})
	}
	r.anchored = r.next > max(r.first, head)
	r.queue.queueRead(r.conn, head, r.next, r.items, r.anchored)
	return r.conn.Flush()
}

func (r *reader) expectedState() keyState { return keyState{generation: r.generation, head: r.head} }

// requestSize returns how many events to request: at most a batch, and none that are
// known.
func (r *reader) requestSize() int {
	limits := r.source.env.Limits
	n := min(limits.Events, max(1, limits.Bytes/r.average))
	wanted := event.Range{First: r.next, Count: min(uint64(n), r.end-r.next)}
	return int(r.known.Missing(wanted)[0].Count) // next is not known
}

// readResponse reads the reply to the request, which it sends if there is none, up to the
// first new event.
func (r *reader) readResponse() error {
	if r.items == 0 {
		if err := r.sendRequest(); err != nil {
			return err
		}
	}
	asked := r.request
	r.request = request{}
	if asked.trim > 0 {
		if err := r.queue.readTrimReply(r.conn); err != nil {
			return err
		}
		r.setHead(r.head + asked.trim)
	}
	p, err := r.queue.readSnapshot(r.conn)
	if err != nil {
		return err
	}
	if p.state.generation != r.generation || p.state.head != r.head {
		return source.ErrMoved
	}
	if asked.anchored {
		if err := r.verifyAnchor(&p); err != nil {
			return err
		}
	} else if p.removed != r.removed {
		return source.ErrMoved
	}
	r.left, r.size, r.full = p.items, -1, p.items == asked.items
	r.updateLag(p)
	return nil
}

func (r *reader) updateLag(p snapshot) {
	r.lag.Store(uint64(max(0, p.length-int(r.next-min(r.next, r.first)))))
}

// verifyAnchor checks that the event before the new ones is the one that was read there.
// Otherwise another client removed or added events in front.
func (r *reader) verifyAnchor(p *snapshot) error {
	if p.items == 0 {
		return source.ErrMoved
	}
	p.items--
	fingerprint, err := r.readFingerprint(r.next - 1)
	if err != nil {
		return err
	}
	if want, known := fingerprintAt(r.known, r.next-1); known && fingerprint != want {
		r.source.env.Log.Warn("another client changed the front", "key", r.key, "position", r.next-1)
		return source.ErrMoved
	}
	return nil
}

// appendEvents reads the events that fit into b.
func (r *reader) appendEvents(b *event.Batch) (err error) {
	limits := r.source.env.Limits
	r.broken = r.broken[:0]
	for r.left > 0 && b.Len() < limits.Events {
		if r.size < 0 {
			if r.size, err = r.queue.nextSize(r.conn); err != nil {
				return err
			}
		}
		start := len(b.Data)
		if start > 0 && start+r.size > limits.Bytes {
			break
		}
		var fingerprint uint32
		if b.Data, fingerprint, err = r.queue.appendEvent(r.conn, b.Data, r.next+uint64(b.Len())); err != nil {
			return err
		}
		if q, ok := r.queue.(*streamQueue); ok && q.entry.left < 0 && q.entry.missing {
			r.broken = append(r.broken, b.Len())
		}
		b.Ends = append(b.Ends, uint32(len(b.Data)))
		b.Range.Fingerprints = append(b.Range.Fingerprints, fingerprint)
		r.left, r.size = r.left-1, -1
	}
	return nil
}

// finishBatch sets the range of b, and moves past it and past the known events after it.
func (r *reader) finishBatch(b *event.Batch) {
	before, n := r.next, b.Len()
	b.Range.First, b.Range.Count = before, uint64(n)
	r.average = max(1, (3*r.average+len(b.Data)/n)/4)
	r.known.Add(event.Range{First: before, Count: uint64(n), Fingerprints: slices.Clone(b.Range.Fingerprints)})
	r.next = r.known.Next(before)
	r.lag.Store(r.lag.Load() - min(r.lag.Load(), r.next-before))
}

// startNextGeneration starts the next generation when the sinks have all of this one.
func (r *reader) startNextGeneration(ctx context.Context) error {
	if r.ackedTo() < r.end {
		return nil
	}
	t := trim{to: r.end, generation: nextGeneration(r.generation, r.end)}
	if err := r.trimNow(ctx, t); err != nil {
		return err
	}
	r.source.env.Log.Warn("a new generation starts", "old", r.partition, "end", t.to,
		"new", partitionName(r.key, t.generation))
	return source.ErrMoved
}

// Ack implements source.Reader. The next Read trims, or Close.
func (r *reader) Ack(_ context.Context, done event.Range) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked.Add(event.Range{First: done.First, Count: done.Count})
	return nil
}

// ackedTo returns the position before which everything is acknowledged.
func (r *reader) ackedTo() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.acked.Next(r.head), r.next)
}

// trimTo returns the position to trim to.
func (r *reader) trimTo() uint64 {
	acked := r.ackedTo()
	if w, ok := r.queue.(walker); ok {
		acked = w.trimmable(acked)
	}
	return max(acked, r.head)
}

// setHead moves the head after a trim.
func (r *reader) setHead(head uint64) {
	if head > r.head {
		r.removed = 0
	}
	r.head, r.first = head, max(r.first, head)
	r.known = clip(r.known, head, noEnd)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = clip(r.acked, head, noEnd)
}

// Close implements source.Reader. It trims on a new connection: the old one may have half
// a reply on it, or be broken without knowing.
func (r *reader) Close(ctx context.Context) error {
	r.disconnect()
	defer r.disconnect()
	if r.moved || r.ackedTo() == r.head {
		return nil
	}
	err := r.ensureConnected(ctx)
	if err == nil && r.trimTo() > r.head {
		err = r.trimNow(ctx, trim{to: r.trimTo()})
	}
	if errors.Is(err, source.ErrMoved) {
		return nil // the sinks have the positions; the next reader compares
	}
	if err != nil {
		return r.source.wrapError("trim", &keyError{r.key, err})
	}
	return nil
}

// trimNow sends a trim and waits for the reply.
func (r *reader) trimNow(ctx context.Context, t trim) error {
	t.expected = r.expectedState()
	return r.conn.WithContext(ctx, func() error {
		r.queue.queueTrim(r.conn, t)
		if err := r.conn.Flush(); err != nil {
			return err
		}
		return r.queue.readTrimReply(r.conn)
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
