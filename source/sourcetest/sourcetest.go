// Package sourcetest is the suite that every kind of source passes. A kind's own
// tests fill a place with events and hand it to Run; what only this kind can do
// they test themselves.
package sourcetest

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// A Place holds events in one partition.
type Place struct {
	// Events are what the place holds, in order.
	Events []string
	// Open makes a source over the place, as after a restart of the engine. Its
	// pipeline remembers ranges. It ends with io.EOF after the last event.
	Open func(t *testing.T, limits source.Limits) source.Source
	// Wait makes one that waits instead of ending. It is nil for a kind that
	// always ends.
	Wait func(t *testing.T, limits source.Limits) source.Source
	// NoLag says that readers cannot tell how many events wait: Lag returns 0.
	NoLag bool
}

// Run holds a kind of source to the contract. fill makes a place of its own
// with the given number of events.
func Run(t *testing.T, fill func(t *testing.T, events int) Place) {
	for _, c := range []struct {
		name   string
		events int
		test   func(t *testing.T, p Place)
	}{
		{"everything once and in order", 1000, inOrder},
		{"an empty place ends", 0, inOrder},
		{"one event", 1, inOrder},
		{"a batch keeps the limits", 500, keepsLimits},
		{"an event above the limit is alone", 20, aloneAboveLimit},
		{"names stay", 10, namesStay},
		{"an unknown partition has moved", 10, unknownMoved},
		{"done ranges are skipped", 1000, skipsDone},
		{"what was not acknowledged comes again", 300, comesAgain},
		{"acknowledgements in any order and in parts", 1000, acksAnyOrder},
		{"acknowledgements while reading", 1000, acksWhileReading},
		{"the batch is the caller's", 500, batchIsCallers},
		{"a blocked read can be cancelled", 20, cancelled},
		{"lag counts down to nothing", 200, lagCounts},
		{"bounds hold what is read", 200, boundsHold},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			defer func() { goleak.VerifyNone(t, before) }()
			p := fill(t, c.events)
			before = goleak.IgnoreCurrent()
			if len(p.Events) != c.events {
				t.Fatalf("the place holds %d events, asked for %d", len(p.Events), c.events)
			}
			c.test(t, p)
		})
	}
}

var usual = source.Limits{Events: 64, Bytes: 1 << 20}

func inOrder(t *testing.T, p Place) {
	o := open(t, p, usual, nil)
	o.expect(p.Events, 0, len(p.Events))
	for range 2 {
		var b event.Batch
		if err := o.reader.Read(t.Context(), &b); !errors.Is(err, io.EOF) {
			t.Errorf("a read past the end returns %v, want io.EOF", err)
		}
	}
	if t.Failed() {
		return
	}
	for i := 1; i < len(o.batches); i++ {
		if o.batches[i].First != o.batches[i-1].End() {
			t.Errorf("batch %v follows %v", o.batches[i], o.batches[i-1])
		}
	}
	o.close()
}

func keepsLimits(t *testing.T, p Place) {
	limits := source.Limits{Events: 7, Bytes: 3*len(p.Events[0]) + len(p.Events[0])/2}
	o := open(t, p, limits, nil)
	o.expect(p.Events, 0, len(p.Events))
	full := false
	for _, r := range o.batches {
		full = full || r.Count > 1
	}
	if !full {
		t.Error("no batch has more than one event, where three fit")
	}
	o.close()
}

func aloneAboveLimit(t *testing.T, p Place) {
	o := open(t, p, source.Limits{Events: 7, Bytes: 1}, nil)
	o.expect(p.Events, 0, len(p.Events))
	for _, r := range o.batches {
		if r.Count != 1 {
			t.Errorf("batch %v has %d events, each above the limit", r, r.Count)
		}
	}
	o.close()
}

func namesStay(t *testing.T, p Place) {
	s := p.Open(t, usual)
	first := partition(t, s)
	if again := partition(t, s); again != first {
		t.Errorf("the partition is called %q, then %q", first, again)
	}
	shut(t, s)
	s = p.Open(t, usual)
	if after := partition(t, s); after != first {
		t.Errorf("the partition is called %q, after a restart %q", first, after)
	}
	shut(t, s)
}

func unknownMoved(t *testing.T, p Place) {
	s := p.Open(t, usual)
	name := partition(t, s) + "0"
	if _, err := s.Open(t.Context(), name, nil); !errors.Is(err, source.ErrMoved) {
		t.Errorf("opening %q returns %v, want source.ErrMoved", name, err)
	}
	shut(t, s)
}

func skipsDone(t *testing.T, p Place) {
	o := open(t, p, usual, nil)
	o.expect(p.Events, 0, len(p.Events))
	all := o.batches
	o.close()
	var done event.Ranges
	skip := map[uint64]bool{}
	for i, r := range all {
		part := r
		switch i % 4 {
		case 0:
			continue
		case 1:
			part = r.Head((r.Count + 1) / 2)
		case 2:
			part = r.Tail(r.Count / 3)
		}
		done.Add(clone(part))
		for pos := part.First; pos < part.End(); pos++ {
			skip[pos] = true
		}
	}
	o = open(t, p, usual, done)
	o.expectWithout(p.Events, skip)
	o.close()
}

func comesAgain(t *testing.T, p Place) {
	for range 2 {
		o := open(t, p, usual, nil)
		o.expect(p.Events, 0, len(p.Events))
		o.close()
	}
	o := open(t, p, usual, nil)
	o.reopen(nil)
	o.expect(p.Events, 0, len(p.Events))
	o.close()
}

func acksAnyOrder(t *testing.T, p Place) {
	o := open(t, p, usual, nil)
	o.expect(p.Events, 0, len(p.Events))
	var done event.Ranges
	random := rand.New(rand.NewPCG(1, 2))
	skip := map[uint64]bool{}
	for _, i := range random.Perm(len(o.batches)) {
		r := o.batches[i]
		if i%5 == 4 {
			continue
		}
		done.Add(clone(r))
		for pos := r.First; pos < r.End(); pos++ {
			skip[pos] = true
		}
		half := r.Count / 2
		o.ack(r.Tail(half))
		o.ack(r.Head(half))
	}
	o.close()
	o = open(t, p, usual, done)
	o.expectWithout(p.Events, skip)
	for _, r := range o.batches {
		o.ack(r)
		done.Add(clone(r))
	}
	o.close()
	o = open(t, p, usual, done)
	o.expect(p.Events, 0, 0)
	o.close()
}

func acksWhileReading(t *testing.T, p Place) {
	o := open(t, p, source.Limits{Events: 10, Bytes: 1 << 20}, nil)
	var acks sync.WaitGroup
	o.each = func(r event.Range) {
		acks.Go(func() { o.ack(r) })
	}
	o.expect(p.Events, 0, len(p.Events))
	acks.Wait()
	o.close()
	var done event.Ranges
	for _, r := range o.batches {
		done.Add(r)
	}
	o = open(t, p, usual, done)
	o.expect(p.Events, 0, 0)
	o.close()
}

// batchIsCallers writes over everything that a reader and an acknowledgement were
// given, as soon as they have returned.
func batchIsCallers(t *testing.T, p Place) {
	o := open(t, p, source.Limits{Events: 16, Bytes: 1 << 20}, nil)
	o.scribble = true
	o.each = func(r event.Range) {
		given := clone(r)
		o.ack(given)
		for i := range given.Prints {
			given.Prints[i] = 0xdeadbeef
		}
	}
	o.expect(p.Events, 0, len(p.Events))
	o.close()
}
