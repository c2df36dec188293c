package tap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

func newHub() *Hub {
	return NewHub([]RowSink{
		{"a", func(to []byte, out *event.Output, i int) []byte { return append(to, out.Doc(i)...) }},
		{"b", func(to []byte, out *event.Output, i int) []byte { return append(to, `"as columns"`...) }},
	})
}

func batchOf(n int) *event.Batch {
	b := &event.Batch{Partition: "p", Range: event.Range{First: 100, Count: uint64(n)}}
	for i := range n {
		b.Append(fmt.Appendf(nil, `{"id":%d}`, i))
	}
	return b
}

func outputOf(docs ...string) *event.Output {
	out := &event.Output{Partition: "p", Range: event.Range{First: 100, Count: uint64(len(docs))}}
	for i, doc := range docs {
		out.Data = append(out.Data, doc...)
		out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
	}
	return out
}

// next returns the next event as text; "" if none waits.
func next(t *testing.T, r *Reader) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	e, err := r.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%s %s %s:%d %s%s", e.Point, e.Sink, e.Partition, e.Position, e.Event, e.Text)
	if e.Error != "" {
		text += " " + e.Stage + ": " + e.Error
	}
	if e.Skipped > 0 {
		text += fmt.Sprintf(" skipped %d", e.Skipped)
	}
	return text
}

func TestReader(t *testing.T) {
	offer := func(h *Hub) {
		h.OfferBatch(batchOf(1))
		h.OfferRows(Output, 0, outputOf(`{"id":1}`))
		h.OfferRows(Output, 1, outputOf(`{"id":1}`))
		h.OfferRows(Sink, 0, outputOf(`{"id":1}`))
		h.OfferRows(Sink, 2, outputOf(`{"id":1}`)) // a sink without rows, such as a changelog
		h.OfferDead("p", []event.DeadLetter{
			{Position: 7, Stage: "script", Error: "boom", Original: []byte("no JSON \xff")},
			{Position: 8, Sink: "b", Stage: "sink", Error: "too long", Original: []byte(`{"id":8}`)},
		})
	}
	for _, test := range []struct {
		name string
		q    Request
		want []string
	}{
		{"all", Request{}, []string{
			`source  p:100 {"id":0}`, `output a p:100 {"id":1}`, `output b p:100 "as columns"`, `sink a p:100 {"id":1}`,
			"dead  p:7 no JSON \uFFFD script: boom", `dead b p:8 {"id":8} sink: too long`,
		}},
		{"points", Request{Points: []Point{Source, Dead}}, []string{`source  p:100 {"id":0}`, "dead  p:7 no JSON \uFFFD script: boom", `dead b p:8 {"id":8} sink: too long`}},
		{"a sink", Request{Sink: "b"}, []string{`output b p:100 "as columns"`, `dead b p:8 {"id":8} sink: too long`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHub()
			r := h.Read(test.q)
			defer r.Close()
			offer(h)
			for _, want := range test.want {
				if got := next(t, r); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			if got := next(t, r); got != "" {
				t.Errorf("got %q, want nothing more", got)
			}
		})
	}
}

func TestReaderIsPaced(t *testing.T) {
	h := newHub()
	r := h.Read(Request{Points: []Point{Source, Dead}, Rate: 0.001})
	defer r.Close()
	h.OfferBatch(batchOf(1000))
	if got := next(t, r); !strings.HasPrefix(got, "source ") {
		t.Errorf("got %q, want an event of the batch", got)
	}
	h.OfferBatch(batchOf(1000))
	h.OfferDead("p", []event.DeadLetter{{Position: 1, Stage: "script", Error: "boom", Original: []byte("1")}})
	if got, want := next(t, r), "dead  p:1 1 script: boom skipped 1000"; got != want {
		t.Errorf("got %q, want %q: each point has a pace of its own", got, want)
	}
}

// TestSlowReader offers more than waits for a reader, from several goroutines. Nothing blocks, and
// what the reader gets and what it lacks add up.
func TestSlowReader(t *testing.T) {
	const batches, size = 50, 100
	h := newHub()
	r := h.Read(Request{})
	defer r.Close()
	var offering sync.WaitGroup
	for range 4 {
		offering.Go(func() {
			b := batchOf(size)
			for range batches {
				h.OfferBatch(b)
			}
		})
	}
	offering.Wait()
	h.OfferDead("p", nil)
	got := uint64(0)
	for len(r.waiting) > 0 {
		e, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got += 1 + e.Skipped
	}
	if got += r.skipped.Load(); got != 4*batches*size {
		t.Errorf("the reader got or lacks %d events, want %d", got, 4*batches*size)
	}
}

// TestOfferedMemory changes what was offered before the reader takes it.
func TestOfferedMemory(t *testing.T) {
	h := newHub()
	r := h.Read(Request{})
	defer r.Close()
	b := batchOf(1)
	h.OfferBatch(b)
	out := outputOf(`{"id":1}`)
	h.OfferRows(Sink, 0, out)
	clear(b.Data)
	clear(out.Data)
	for _, want := range []string{`source  p:100 {"id":0}`, `sink a p:100 {"id":1}`} {
		if got := next(t, r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestClose(t *testing.T) {
	h := newHub()
	before := h.Read(Request{})
	h.OfferBatch(batchOf(1))
	h.Close()
	h.OfferBatch(batchOf(1))
	if got, want := next(t, before), `source  p:100 {"id":0}`; got != want {
		t.Errorf("got %q, want %q, which had passed before", got, want)
	}
	for name, r := range map[string]*Reader{"before": before, "after": h.Read(Request{})} {
		if e, err := r.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("a reader from %s the end got %+v, %v", name, e, err)
		}
		r.Close()
	}
}

// TestOffersWithoutReaders checks that nobody pays for a tap that nobody reads.
func TestOffersWithoutReaders(t *testing.T) {
	h := newHub()
	h.Read(Request{}).Close()
	b, out, dead := batchOf(10), outputOf(`{"id":1}`), make([]event.DeadLetter, 3)
	for name, h := range map[string]*Hub{"no hub": nil, "a hub": h} {
		if n := testing.AllocsPerRun(100, func() {
			h.OfferBatch(b)
			h.OfferRows(Output, 0, out)
			h.OfferDead("p", dead)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestLargeEvent(t *testing.T) {
	h := newHub()
	r := h.Read(Request{})
	defer r.Close()
	b := &event.Batch{Range: event.Range{Count: 1}}
	b.Append([]byte(`"` + strings.Repeat("é", bytesMax) + `"`))
	h.OfferBatch(b)
	e, err := r.Next(t.Context())
	if err != nil || e.Event != nil || len(e.Text) < bytesMax-1 || len(e.Text) > bytesMax+8 {
		t.Errorf("got an event of %d and a text of %d bytes, %v, want a text of about %d", len(e.Event), len(e.Text), err, bytesMax)
	}
}
