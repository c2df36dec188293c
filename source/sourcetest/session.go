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

// readTimeout is how long reading all events may take.
const readTimeout = 20 * time.Second

// A session is a source with one reader, and what was read with it.
type session struct {
	t         *testing.T
	source    source.Source
	name      string
	reader    source.Reader
	limits    source.Limits
	batches   []event.Range     // ranges read so far
	onBatch   func(event.Range) // called with each range if it is not nil
	overwrite bool              // overwrite each batch
}

func openSession(t *testing.T, p Place, limits source.Limits, done event.Ranges) *session {
	t.Helper()
	return newSession(t, p.Open(t, limits), limits, done)
}

func newSession(t *testing.T, s source.Source, limits source.Limits, done event.Ranges) *session {
	t.Helper()
	o := &session{t: t, source: s, name: onlyPartition(t, s), limits: limits}
	o.openReader(done)
	return o
}

func (o *session) openReader(done event.Ranges) {
	o.t.Helper()
	var err error
	if o.reader, err = o.source.Open(o.t.Context(), o.name, done); err != nil {
		o.t.Fatalf("open %q: %v", o.name, err)
	}
}

// reopen closes the reader and opens another with the same source.
func (o *session) reopen(done event.Ranges) {
	o.t.Helper()
	if err := o.reader.Close(o.t.Context()); err != nil {
		o.t.Fatalf("close the reader: %v", err)
	}
	o.openReader(done)
}

func (o *session) close() {
	o.t.Helper()
	if err := o.reader.Close(o.t.Context()); err != nil {
		o.t.Errorf("close the reader: %v", err)
	}
	closeSource(o.t, o.source)
}

func (o *session) ack(r event.Range) {
	if err := o.reader.Ack(o.t.Context(), r); err != nil {
		o.t.Errorf("acknowledge %v: %v", r, err)
	}
}

// A readEvent is an event with its position.
type readEvent struct {
	position uint64
	text     string
}

// expectEvents reads to the end and compares the result with events[from:to].
func (o *session) expectEvents(events []string, from, to int) {
	o.t.Helper()
	got := o.readAll()
	if len(got) != to-from {
		o.t.Errorf("read %d events, want %d", len(got), to-from)
	}
	for i := range min(len(got), to-from) {
		if got[i].text != events[from+i] {
			o.t.Fatalf("event %d is %q, want %q", i, got[i].text, events[from+i])
		}
	}
}

// expectExcept reads to the end and compares the result with the events that are not in
// skip. Positions must start at 0.
func (o *session) expectExcept(events []string, skip map[uint64]bool) {
	o.t.Helper()
	var want []readEvent
	for i, text := range events {
		if !skip[uint64(i)] {
			want = append(want, readEvent{uint64(i), text})
		}
	}
	if got := o.readAll(); !slices.Equal(got, want) {
		o.t.Errorf("read %d events, want the %d others", len(got), len(want))
	}
}

// readAll reads until io.EOF and checks every batch.
func (o *session) readAll() (got []readEvent) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), readTimeout)
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
		o.checkBatch(&b)
		for i := range b.Len() {
			got = append(got, readEvent{b.Range.First + uint64(i), string(b.Doc(i))})
		}
		r := cloneRange(b.Range)
		o.batches = append(o.batches, r)
		if o.onBatch != nil {
			o.onBatch(r)
		}
		if o.overwrite {
			overwriteBatch(&b)
		}
	}
}

func (o *session) checkBatch(b *event.Batch) {
	o.t.Helper()
	switch {
	case b.Partition != o.name:
		o.t.Fatalf("a batch is from partition %q, want %q", b.Partition, o.name)
	case b.Len() == 0:
		o.t.Fatal("a batch is empty")
	case b.Range.Count != uint64(b.Len()):
		o.t.Fatalf("a batch of %d events has range %v", b.Len(), b.Range)
	case len(b.Range.Fingerprints) != 0 && len(b.Range.Fingerprints) != b.Len():
		o.t.Fatalf("a batch of %d events has %d fingerprints", b.Len(), len(b.Range.Fingerprints))
	case int(b.Ends[b.Len()-1]) != len(b.Data):
		o.t.Fatalf("a batch ends at %d of %d bytes", b.Ends[b.Len()-1], len(b.Data))
	case b.Len() > o.limits.Events:
		o.t.Fatalf("a batch has %d events, the limit is %d", b.Len(), o.limits.Events)
	case b.Len() > 1 && len(b.Data) > o.limits.Bytes:
		o.t.Fatalf("a batch of %d events has %d bytes, the limit is %d", b.Len(), len(b.Data), o.limits.Bytes)
	}
}

// overwriteBatch overwrites the memory of a batch, up to its capacity.
func overwriteBatch(b *event.Batch) {
	for i := range b.Data[:cap(b.Data)] {
		b.Data[:cap(b.Data)][i] = 0xff
	}
	for i := range b.Ends[:cap(b.Ends)] {
		b.Ends[:cap(b.Ends)][i] = 1 << 31
	}
	fingerprints := b.Range.Fingerprints[:cap(b.Range.Fingerprints)]
	for i := range fingerprints {
		fingerprints[i] = 0xdeadbeef
	}
	b.Partition, b.Range.First, b.Range.Count = "overwritten", 1<<40, 1<<40
}

// cloneRange returns r with a copy of its fingerprints.
func cloneRange(r event.Range) event.Range {
	r.Fingerprints = slices.Clone(r.Fingerprints)
	return r
}

func onlyPartition(t *testing.T, s source.Source) string {
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

func closeSource(t *testing.T, s source.Source) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close the source: %v", err)
	}
}
