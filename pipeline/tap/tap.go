// Package tap passes samples of the events that flow through a pipeline to readers who want to
// look at them.
//
// A Hub is part of a pipeline, which offers it events at four points. A Reader gets those of the
// points that it has asked for, at most so many in a second. While nobody reads, an offer costs one
// atomic load. The pipeline never waits for a reader: one that is slow lacks events, and learns how
// many.
//
// Hubs and Readers are safe for concurrent use.
package tap

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
)

// A Point is a place in a pipeline.
type Point string

// The points, in the order in which an event passes them.
const (
	Source Point = "source" // events as they were read, before the script
	Output Point = "output" // rows that the script has made, before their sink gets them
	Sink   Point = "sink"   // rows that their sink has committed
	Dead   Point = "dead"   // dead letters
)

// Points are all points.
var Points = []Point{Source, Output, Sink, Dead}

// An Event is what a reader gets.
type Event struct {
	Time      time.Time `json:"time"` // when it passed the point
	Point     Point     `json:"point"`
	Sink      string    `json:"sink,omitempty"` // of an output, a row, or a dead letter that a sink has rejected
	Partition string    `json:"partition"`
	Position  uint64    `json:"position"` // in the partition
	// Event is the document or the row, or the original of a dead letter. Text has it if it is no
	// JSON; what is not UTF-8 in it is replaced.
	Event json.RawMessage `json:"event,omitempty"`
	Text  string          `json:"text,omitempty"`
	// The fields below are those of a dead letter.
	Stage     string `json:"stage,omitempty"`
	Error     string `json:"error,omitempty"`
	Traceback string `json:"traceback,omitempty"`
	// Skipped is how many events the reader did not get since the one before, because there were
	// more than it wants, or than it takes.
	Skipped uint64 `json:"skipped,omitempty"`

	raw []byte // Event or Text, before the reader has it
}

// A Request says what a reader wants.
type Request struct {
	Points []Point `json:"points,omitempty"` // empty for all
	Sink   string  `json:"sink,omitempty"`   // only outputs, rows and dead letters of this one
	Rate   float64 `json:"rate,omitempty"`   // at most so many events in a second of each point and sink; 0 is RateMax
}

const (
	// RateMax is the highest rate of a reader.
	RateMax = 10_000
	// waitingMax is how many events wait for a reader.
	waitingMax = 1000
	// bytesMax is the size beyond which an event is cut off, and is text.
	bytesMax = 256 << 10
)

// A RowSink is a sink of the pipeline.
type RowSink struct {
	Name string
	// AppendRow appends row i of an output as JSON.
	AppendRow func(to []byte, out *event.Output, i int) []byte
}

// A Hub passes events to its readers. A nil Hub has none.
type Hub struct {
	sinks   []RowSink
	readers atomic.Pointer[[]*Reader]

	mu     sync.Mutex // guards changes of readers
	closed bool
}

// NewHub returns the hub of a pipeline with these sinks.
func NewHub(sinks []RowSink) *Hub { return &Hub{sinks: sinks} }

// ErrClosed is the error of a reader whose pipeline has ended.
var ErrClosed = errors.New("the pipeline has ended")

// Read returns a reader, which its caller closes.
func (h *Hub) Read(q Request) *Reader {
	r := &Reader{hub: h, request: q, waiting: make(chan Event, waitingMax), closed: make(chan struct{}), pace: NewPace(q.Rate)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		r.close()
		return r
	}
	var all []*Reader
	if before := h.readers.Load(); before != nil {
		all = slices.Clone(*before)
	}
	all = append(all, r)
	h.readers.Store(&all)
	return r
}

// Close ends all readers.
func (h *Hub) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if all := h.readers.Swap(nil); all != nil {
		for _, r := range *all {
			r.close()
		}
	}
}

func (h *Hub) remove(r *Reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.readers.Load()
	if before == nil {
		return
	}
	all := slices.DeleteFunc(slices.Clone(*before), func(other *Reader) bool { return other == r })
	if len(all) == 0 {
		h.readers.Store(nil)
		return
	}
	h.readers.Store(&all)
}

// active returns the readers; nil for none.
func (h *Hub) active() []*Reader {
	if h == nil {
		return nil
	}
	if all := h.readers.Load(); all != nil {
		return *all
	}
	return nil
}

// OfferBatch offers events that were read. It keeps no memory of the batch.
func (h *Hub) OfferBatch(b *event.Batch) {
	for _, r := range h.active() {
		r.offer(Source, "", b.Len(), func(i int) Event {
			return Event{Partition: b.Partition, Position: b.Range.First + uint64(i), raw: slices.Clone(cut(b.Doc(i)))}
		})
	}
}

// OfferRows offers the rows of an output for a sink, by its number, at the point Output or Sink.
// It keeps no memory of the output.
func (h *Hub) OfferRows(at Point, sink int, out *event.Output) {
	readers := h.active()
	if len(readers) == 0 || sink >= len(h.sinks) {
		return
	}
	to := &h.sinks[sink]
	for _, r := range readers {
		r.offer(at, to.Name, out.Len(), func(i int) Event {
			return Event{Partition: out.Partition, Position: out.Position(i), raw: cut(to.AppendRow(nil, out, i))}
		})
	}
}

// OfferDead offers dead letters of a partition.
func (h *Hub) OfferDead(partition string, dead []event.DeadLetter) {
	readers := h.active()
	if len(readers) == 0 {
		return
	}
	for i := range dead {
		d := &dead[i]
		for _, r := range readers {
			r.offer(Dead, d.Sink, 1, func(int) Event {
				return Event{
					Partition: partition, Position: d.Position, raw: slices.Clone(cut(d.Original)),
					Stage: d.Stage, Error: d.Error, Traceback: d.Traceback,
				}
			})
		}
	}
}

func cut(doc []byte) []byte { return doc[:min(len(doc), bytesMax)] }

// A Reader gets events of a pipeline until it is closed.
type Reader struct {
	hub     *Hub
	request Request
	waiting chan Event
	closed  chan struct{}
	ending  sync.Once
	skipped atomic.Uint64

	pace *Pace
}

func (r *Reader) close() { r.ending.Do(func() { close(r.closed) }) }

// Close ends the reader.
func (r *Reader) Close() {
	r.hub.remove(r)
	r.close()
}

// Next returns the next event. It waits for one until ctx ends, or returns ErrClosed once the
// pipeline has ended.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	var e Event
	select {
	case e = <-r.waiting:
	default:
		select {
		case e = <-r.waiting:
		case <-r.closed:
			return Event{}, ErrClosed
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
	e.Skipped = r.skipped.Swap(0)
	e.set()
	return e, nil
}

// set makes Event or Text of what was taken.
func (e *Event) set() {
	if json.Valid(e.raw) {
		e.Event = e.raw
	} else {
		e.Text = strings.ToValidUTF8(string(e.raw), "\uFFFD")
	}
	e.raw = nil
}

// wants reports whether the reader has asked for what passes a point.
func (r *Reader) wants(at Point, sink string) bool {
	return (len(r.request.Points) == 0 || slices.Contains(r.request.Points, at)) &&
		(r.request.Sink == "" || r.request.Sink == sink)
}

// offer passes some of n events to the reader, spread evenly over all. take copies one.
func (r *Reader) offer(at Point, sink string, n int, take func(i int) Event) {
	if n == 0 || !r.wants(at, sink) {
		return
	}
	chosen := r.pace.Allow(at, sink, n)
	now, passed := time.Now(), 0
	first := rand.Float64()
	for k := range chosen {
		if len(r.waiting) == cap(r.waiting) {
			break // before it is copied
		}
		e := take(int((float64(k) + first) * float64(n) / float64(chosen)))
		e.Time, e.Point, e.Sink = now, at, sink
		select {
		case r.waiting <- e:
			passed++
		default:
		}
	}
	r.skipped.Add(uint64(n - passed))
}
