package sourcetest

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// patience is how long a call may take before it counts as stuck.
const patience = 20 * time.Second

// An opened is a source with one reader, and what was read through it.
type opened struct {
	t        *testing.T
	source   source.Source
	name     string
	reader   source.Reader
	limits   source.Limits
	batches  []event.Range     // read so far
	each     func(event.Range) // called with each, when set
	scribble bool              // whether to write over each batch
}

func open(t *testing.T, p Place, limits source.Limits, done event.Ranges) *opened {
	t.Helper()
	return reading(t, p.Open(t, limits), limits, done)
}

func reading(t *testing.T, s source.Source, limits source.Limits, done event.Ranges) *opened {
	t.Helper()
	o := &opened{t: t, source: s, name: partition(t, s), limits: limits}
	o.start(done)
	return o
}

func (o *opened) start(done event.Ranges) {
	o.t.Helper()
	var err error
	if o.reader, err = o.source.Open(o.t.Context(), o.name, done); err != nil {
		o.t.Fatalf("open %q: %v", o.name, err)
	}
}

// reopen gives up reading and begins again with the same source.
func (o *opened) reopen(done event.Ranges) {
	o.t.Helper()
	if err := o.reader.Close(o.t.Context()); err != nil {
		o.t.Fatalf("close the reader: %v", err)
	}
	o.start(done)
}

func (o *opened) close() {
	o.t.Helper()
	if err := o.reader.Close(o.t.Context()); err != nil {
		o.t.Errorf("close the reader: %v", err)
	}
	shut(o.t, o.source)
}

func (o *opened) ack(r event.Range) {
	if err := o.reader.Ack(o.t.Context(), r); err != nil {
		o.t.Errorf("acknowledge %v: %v", r, err)
	}
}

// A found is an event that was read.
type found struct {
	position uint64
	text     string
}

// expect reads to the end and compares with events[from:to].
func (o *opened) expect(events []string, from, to int) {
	o.t.Helper()
	got := o.drain()
	if len(got) != to-from {
		o.t.Errorf("read %d events, want %d", len(got), to-from)
	}
	for i := range min(len(got), to-from) {
		if got[i].text != events[from+i] {
			o.t.Fatalf("event %d is %q, want %q", i, got[i].text, events[from+i])
		}
	}
}

// expectWithout reads to the end and compares with the events at the positions
// that are not in skip. Positions are counted from 0 here.
func (o *opened) expectWithout(events []string, skip map[uint64]bool) {
	o.t.Helper()
	var want []found
	for i, text := range events {
		if !skip[uint64(i)] {
			want = append(want, found{uint64(i), text})
		}
	}
	if got := o.drain(); !slices.Equal(got, want) {
		o.t.Errorf("read %d events that are not the %d left to do", len(got), len(want))
	}
}

// drain reads until io.EOF and checks the form of every batch.
func (o *opened) drain() (got []found) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	var b event.Batch
	for {
		err := o.reader.Read(ctx, &b)
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			o.t.Fatalf("read after %d events: %v", len(got), err)
		}
		o.check(&b)
		for i := range b.Len() {
			got = append(got, found{b.Range.First + uint64(i), string(b.Doc(i))})
		}
		r := clone(b.Range)
		o.batches = append(o.batches, r)
		if o.each != nil {
			o.each(r)
		}
		if o.scribble {
			spoil(&b)
		}
	}
}

func (o *opened) check(b *event.Batch) {
	o.t.Helper()
	switch {
	case b.Partition != o.name:
		o.t.Fatalf("a batch is from partition %q, want %q", b.Partition, o.name)
	case b.Len() == 0:
		o.t.Fatal("a batch is empty")
	case b.Range.Count != uint64(b.Len()):
		o.t.Fatalf("a batch of %d events has range %v", b.Len(), b.Range)
	case len(b.Range.Prints) != 0 && len(b.Range.Prints) != b.Len():
		o.t.Fatalf("a batch of %d events has %d fingerprints", b.Len(), len(b.Range.Prints))
	case int(b.Ends[b.Len()-1]) != len(b.Data):
		o.t.Fatalf("a batch ends at %d of %d bytes", b.Ends[b.Len()-1], len(b.Data))
	case b.Len() > o.limits.Events:
		o.t.Fatalf("a batch has %d events, the limit is %d", b.Len(), o.limits.Events)
	case b.Len() > 1 && len(b.Data) > o.limits.Bytes:
		o.t.Fatalf("a batch of %d events has %d bytes, the limit is %d", b.Len(), len(b.Data), o.limits.Bytes)
	}
}

// spoil writes over everything a batch holds, up to its capacity.
func spoil(b *event.Batch) {
	for i := range b.Data[:cap(b.Data)] {
		b.Data[:cap(b.Data)][i] = 0xff
	}
	for i := range b.Ends[:cap(b.Ends)] {
		b.Ends[:cap(b.Ends)][i] = 1 << 31
	}
	prints := b.Range.Prints[:cap(b.Range.Prints)]
	for i := range prints {
		prints[i] = 0xdeadbeef
	}
	b.Partition, b.Range.First, b.Range.Count = "spoilt", 1<<40, 1<<40
}

// clone returns r with fingerprints of its own.
func clone(r event.Range) event.Range {
	r.Prints = slices.Clone(r.Prints)
	return r
}

func partition(t *testing.T, s source.Source) string {
	t.Helper()
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatalf("list the partitions: %v", err)
	}
	if len(names) != 1 {
		t.Fatalf("the place has partitions %q, want one", names)
	}
	return names[0]
}

func shut(t *testing.T, s source.Source) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close the source: %v", err)
	}
}
