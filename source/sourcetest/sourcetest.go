// Package sourcetest is the suite that every kind of source passes. The test of a kind
// fills a place with events and calls Run. It tests by itself what only this kind can do.
package sourcetest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// A Place holds events in one partition.
type Place struct {
	// Events are the events of the place, in order.
	Events []string
	// Open makes a source that reads the place, as after a restart of the engine. Its
	// pipeline remembers ranges. Its readers return io.EOF after the last event.
	Open func(t *testing.T, limits source.Limits) source.Source
	// Wait makes a source whose readers wait for more events instead. It is nil for a
	// kind that never waits.
	Wait func(t *testing.T, limits source.Limits) source.Source
	// Renew makes the partition a new one that continues it, such as another file under the same
	// path. It is called while no source is open. It is nil if no test can do that.
	Renew func(t *testing.T)
	// NoLag says that readers cannot tell how many events wait: Lag returns 0.
	NoLag bool
}

// Run tests a kind of source against the contract. fill makes a new place with the given
// number of events for each test.
func Run(t *testing.T, fill func(t *testing.T, events int) Place) {
	for _, c := range []struct {
		name   string
		events int
		test   func(t *testing.T, p Place)
	}{
		{"every event once and in order", 1000, readsInOrder},
		{"an empty place ends", 0, readsInOrder},
		{"one event", 1, readsInOrder},
		{"a batch keeps the limits", 500, keepsLimits},
		{"an event above the limit is a batch of its own", 20, largeEventIsAlone},
		{"names are stable", 10, namesAreStable},
		{"partitions that continue one another have one unit", 10, unitOutlivesPartition},
		{"an unknown partition has moved", 10, unknownPartitionMoved},
		{"committed ranges are skipped", 1000, skipsDone},
		{"unacknowledged events are read again", 300, rereadsUnacknowledged},
		{"acknowledgements in any order and in parts", 1000, acksInAnyOrder},
		{"acknowledgements while reading", 1000, acksWhileReading},
		{"the caller owns the batch", 500, callerOwnsBatch},
		{"a blocked read can be cancelled", 20, readCanBeCancelled},
		{"lag counts down to zero", 200, lagCounts},
		{"bounds match the events", 200, boundsMatchEvents},
		{"a peek consumes nothing", 200, peekConsumesNothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			defer func() { goleak.VerifyNone(t, before) }()
			p := fill(t, c.events)
			before = goleak.IgnoreCurrent()
			if len(p.Events) != c.events {
				t.Fatalf("the place has %d events, want %d", len(p.Events), c.events)
			}
			c.test(t, p)
		})
	}
}

var defaultLimits = source.Limits{Events: 64, Bytes: 1 << 20}

func readsInOrder(t *testing.T, p Place) {
	o := openSession(t, p, defaultLimits, nil)
	o.expectEvents(p.Events, 0, len(p.Events))
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
	o := openSession(t, p, limits, nil)
	o.expectEvents(p.Events, 0, len(p.Events))
	full := false
	for _, r := range o.batches {
		full = full || r.Count > 1
	}
	if !full {
		t.Error("no batch has more than one event, where three fit")
	}
	o.close()
}

func largeEventIsAlone(t *testing.T, p Place) {
	o := openSession(t, p, source.Limits{Events: 7, Bytes: 1}, nil)
	o.expectEvents(p.Events, 0, len(p.Events))
	for _, r := range o.batches {
		if r.Count != 1 {
			t.Errorf("batch %v has %d events, each above the limit", r, r.Count)
		}
	}
	o.close()
}

func namesAreStable(t *testing.T, p Place) {
	s := p.Open(t, defaultLimits)
	first := onlyPartition(t, s)
	if again := onlyPartition(t, s); again != first {
		t.Errorf("the partition is called %q, then %q", first, again)
	}
	closeSource(t, s)
	s = p.Open(t, defaultLimits)
	if after := onlyPartition(t, s); after != first {
		t.Errorf("the partition is called %q, after a restart %q", first, after)
	}
	closeSource(t, s)
}

// unitOutlivesPartition asks for the unit of the partition and of the one that continues it.
func unitOutlivesPartition(t *testing.T, p Place) {
	ask := func() (partition, unit string) {
		t.Helper()
		s := p.Open(t, defaultLimits)
		defer closeSource(t, s)
		partition = onlyPartition(t, s)
		unit = partition
		if unitOf := s.Traits().Unit; unitOf != nil {
			unit = unitOf(partition)
		}
		if unit == "" || len(unit) > 1000 || !utf8.ValidString(unit) {
			t.Errorf("the unit of partition %q is called %q, want UTF-8 of 1 to 1000 bytes", partition, unit)
		}
		return partition, unit
	}
	partition, unit := ask()
	if _, again := ask(); again != unit {
		t.Errorf("the unit of partition %q is called %q, after a restart %q", partition, unit, again)
	}
	if p.Renew == nil {
		return
	}
	p.Renew(t)
	next, after := ask()
	if next == partition {
		t.Fatalf("the partition is still called %q", partition)
	}
	if after != unit {
		t.Errorf("partition %q has the unit %q, and the one that continues it, %q, has %q", partition, unit, next, after)
	}
}

func unknownPartitionMoved(t *testing.T, p Place) {
	s := p.Open(t, defaultLimits)
	name := onlyPartition(t, s) + "0"
	if _, err := s.Open(t.Context(), name, nil); !errors.Is(err, source.ErrMoved) {
		t.Errorf("opening %q returns %v, want source.ErrMoved", name, err)
	}
	closeSource(t, s)
}

func skipsDone(t *testing.T, p Place) {
	o := openSession(t, p, defaultLimits, nil)
	o.expectEvents(p.Events, 0, len(p.Events))
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
		done.Add(cloneRange(part))
		for pos := part.First; pos < part.End(); pos++ {
			skip[pos] = true
		}
	}
	o = openSession(t, p, defaultLimits, done)
	o.expectExcept(p.Events, skip)
	o.close()
}

func rereadsUnacknowledged(t *testing.T, p Place) {
	for range 2 {
		o := openSession(t, p, defaultLimits, nil)
		o.expectEvents(p.Events, 0, len(p.Events))
		o.close()
	}
	o := openSession(t, p, defaultLimits, nil)
	o.reopen(nil)
	o.expectEvents(p.Events, 0, len(p.Events))
	o.close()
}

func acksInAnyOrder(t *testing.T, p Place) {
	o := openSession(t, p, defaultLimits, nil)
	o.expectEvents(p.Events, 0, len(p.Events))
	var done event.Ranges
	random := rand.New(rand.NewPCG(1, 2))
	skip := map[uint64]bool{}
	for _, i := range random.Perm(len(o.batches)) {
		r := o.batches[i]
		if i%5 == 4 {
			continue
		}
		done.Add(cloneRange(r))
		for pos := r.First; pos < r.End(); pos++ {
			skip[pos] = true
		}
		half := r.Count / 2
		o.ack(r.Tail(half))
		o.ack(r.Head(half))
	}
	o.close()
	o = openSession(t, p, defaultLimits, done)
	o.expectExcept(p.Events, skip)
	for _, r := range o.batches {
		o.ack(r)
		done.Add(cloneRange(r))
	}
	o.close()
	o = openSession(t, p, defaultLimits, done)
	o.expectEvents(p.Events, 0, 0)
	o.close()
}

func acksWhileReading(t *testing.T, p Place) {
	o := openSession(t, p, source.Limits{Events: 10, Bytes: 1 << 20}, nil)
	var acks sync.WaitGroup
	o.onBatch = func(r event.Range) {
		acks.Go(func() { o.ack(r) })
	}
	o.expectEvents(p.Events, 0, len(p.Events))
	acks.Wait()
	o.close()
	var done event.Ranges
	for _, r := range o.batches {
		done.Add(r)
	}
	o = openSession(t, p, defaultLimits, done)
	o.expectEvents(p.Events, 0, 0)
	o.close()
}

// callerOwnsBatch overwrites each batch and each acknowledged range as soon as the call
// returns.
func callerOwnsBatch(t *testing.T, p Place) {
	o := openSession(t, p, source.Limits{Events: 16, Bytes: 1 << 20}, nil)
	o.overwrite = true
	o.onBatch = func(r event.Range) {
		given := cloneRange(r)
		o.ack(given)
		for i := range given.Fingerprints {
			given.Fingerprints[i] = 0xdeadbeef
		}
	}
	o.expectEvents(p.Events, 0, len(p.Events))
	o.close()
}

// readCanBeCancelled cancels the context of a read that waits.
func readCanBeCancelled(t *testing.T, p Place) {
	if p.Wait == nil {
		t.Skip("this kind never waits")
	}
	o := newSession(t, p.Wait(t, defaultLimits), defaultLimits, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var b event.Batch
		close(begun)
		for {
			if err := o.reader.Read(ctx, &b); err != nil {
				ended <- err
				return
			}
		}
	}()
	<-begun
	select {
	case err := <-ended:
		t.Fatalf("a read that should wait returns %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled read returns %v, want context.Canceled", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a cancelled read still waits after a minute")
	}
	o.close()
}

func lagCounts(t *testing.T, p Place) {
	o := openSession(t, p, source.Limits{Events: 10, Bytes: 1 << 20}, nil)
	var read uint64
	o.onBatch = func(r event.Range) {
		read += r.Count
		want := uint64(len(p.Events)) - read
		if p.NoLag {
			want = 0
		}
		if lag := o.reader.Lag(); lag != want {
			t.Errorf("after %d of %d events the lag is %d, want %d", read, len(p.Events), lag, want)
		}
	}
	o.readAll()
	o.close()
}

// boundsMatchEvents compares bounds with what a reader reads, before and after all events
// are acknowledged.
func boundsMatchEvents(t *testing.T, p Place) {
	s := p.Open(t, defaultLimits)
	defer closeSource(t, s)
	boundsOf := s.Traits().Bounds
	if boundsOf == nil {
		t.Skip("this kind cannot tell which positions it holds")
	}
	o := openSession(t, p, defaultLimits, nil)
	bounds := func() event.Range {
		t.Helper()
		all, err := boundsOf(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("the bounds are %v, %v", all, err)
		}
		return all[o.name]
	}
	before := bounds()
	o.readAll()
	if first, last := o.batches[0], o.batches[len(o.batches)-1]; before.First != first.First || before.End() != last.End() {
		t.Errorf("the bounds are %v, from %v to %v was read", before, first, last)
	}
	for _, r := range o.batches {
		o.ack(r)
	}
	o.close()
	if after := bounds(); after.End() != before.End() || after.First < before.First {
		t.Errorf("the bounds were %v, and are %v when all is acknowledged", before, after)
	}
}

// peekConsumesNothing peeks before the first reader, while one has read everything, and again; the
// events are there for a reader after that.
func peekConsumesNothing(t *testing.T, p Place) {
	s := p.Open(t, source.Limits{Events: 7, Bytes: 1 << 20})
	peek := s.Traits().Peek
	if peek == nil {
		closeSource(t, s)
		t.Skip("reading this kind consumes the events")
	}
	expect := func() {
		t.Helper()
		var seen []string
		err := peek(t.Context(), func(b *event.Batch) error {
			for i := range b.Len() {
				seen = append(seen, string(b.Doc(i)))
			}
			return nil
		})
		if err != nil || !slices.Equal(seen, p.Events) {
			t.Fatalf("a peek shows %d events of %d, %v", len(seen), len(p.Events), err)
		}
	}
	expect()
	expect()
	stop, calls := errors.New("enough"), 0
	if err := peek(t.Context(), func(*event.Batch) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("a peek that is stopped returns %v after %d batches", err, calls)
	}
	closeSource(t, s)
	o := openSession(t, p, defaultLimits, nil)
	o.expectEvents(p.Events, 0, len(p.Events))
	if peek := o.source.Traits().Peek; peek != nil {
		expect()
	}
	o.close()
}
