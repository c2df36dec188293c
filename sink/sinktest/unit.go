package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/sink"
)

// noteEvents is the number of events that a note of the suite belongs to, if it does not say
// otherwise: note n belongs to those at [3n-3, 3n).
const noteEvents = 3

func rangeOfNote(number uint64) event.Range { return rangeAt((number-1)*noteEvents, noteEvents) }

// A testUnit writes the notes of one unit with the events of one partition, as a process of its own.
type testUnit struct {
	*testWriter
	sink  sink.Sink
	unit  sink.Unit
	close func()
}

func (t *testEnv) keepsUnits() bool {
	s := t.place.Sink(t.T, "p")
	defer s.Close()
	return s.Traits().Units != nil
}

// openUnit takes over unit u and partition a.
func (t *testEnv) openUnit() *testUnit {
	t.Helper()
	u, err := t.tryOpenUnit("p", "a", "u")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (t *testEnv) tryOpenUnit(pipeline, partition, name string) (*testUnit, error) {
	s := t.place.Sink(t.T, pipeline)
	closeSink := func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the sink: %v", err)
		}
	}
	unit, err := s.Traits().Units.OpenUnit(t.ctx, name)
	if err != nil {
		closeSink()
		return nil, fmt.Errorf("opening unit %q: %w", name, err)
	}
	w, done, err := s.Open(t.ctx, partition)
	if err != nil {
		closeSink()
		return nil, fmt.Errorf("opening partition %q: %w", partition, err)
	}
	closeAll := sync.OnceFunc(func() {
		if err := errors.Join(w.Close(), unit.Close()); err != nil {
			t.Errorf("closing writer and unit: %v", err)
		}
		closeSink()
	})
	t.Cleanup(closeAll)
	traits := s.Traits()
	return &testUnit{&testWriter{Writer: w, t: t, partition: partition, columns: traits.Columns, order: traits.Order, committed: done}, s, unit, closeAll}, nil
}

// makeNote makes a note whose data has every byte.
func makeNote(number uint64, size int) *sink.Note {
	sum := fnv.New64a()
	fmt.Fprint(sum, number, size)
	n := &sink.Note{Number: number, Sum: sum.Sum64(), Data: make([]byte, size)}
	state := n.Sum
	for i := range n.Data {
		state = state*6364136223846793005 + 1442695040888963407
		n.Data[i] = byte(state >> 56)
	}
	return n
}

// noteSize is a size for a note, which differs from those beside it. Some notes are empty.
func noteSize(number uint64) int {
	if number%7 == 0 {
		return 0
	}
	return int(number * 977 % 3001)
}

// writeNote writes an output with a note.
func (u *testUnit) writeNote(out *event.Output, note *sink.Note) error {
	w, ok := u.Writer.(sink.NoteWriter)
	if !ok {
		u.t.Fatalf("the writer of a sink with units is a %T, and no NoteWriter", u.Writer)
	}
	return w.WriteNote(u.t.ctx, out, u.unit, note)
}

// writeNumber writes the note of a number with its events.
func (u *testUnit) writeNumber(number uint64) error {
	r := rangeOfNote(number)
	return u.writeNote(u.makeEvents(r.First, r.Count), makeNote(number, noteSize(number)))
}

func (u *testUnit) mustWrite(from, to uint64) {
	u.t.Helper()
	for number := from; number <= to; number++ {
		if err := u.writeNumber(number); err != nil {
			u.t.Fatalf("writing note %d: %v", number, err)
		}
	}
}

func (u *testUnit) status() sink.UnitStatus {
	u.t.Helper()
	status, err := u.unit.Status(u.t.ctx)
	if err != nil {
		u.t.Fatal(err)
	}
	return status
}

func (u *testUnit) expectStatus(first, last uint64) {
	u.t.Helper()
	bytes := uint64(0)
	for number := first; number <= last; number++ {
		bytes += uint64(noteSize(number))
	}
	if got := u.status(); got.First != first || got.Last != last || got.Bytes != bytes || got.Owner == "" {
		u.t.Errorf("the unit's status is %+v, want notes %d to %d of %d bytes, and an owner", got, first, last, bytes)
	}
}

// readNotes returns the notes from a number on.
func (u *testUnit) readNotes(from uint64) (notes []*sink.Note, err error) {
	err = u.unit.Notes(u.t.ctx, from, func(n *sink.Note) error {
		notes = append(notes, &sink.Note{Number: n.Number, Sum: n.Sum, Data: bytes.Clone(n.Data)})
		return nil
	})
	return notes, err
}

// expectNotes fails the test unless the notes from a number on are want.
func (u *testUnit) expectNotes(from uint64, want ...*sink.Note) {
	u.t.Helper()
	got, err := u.readNotes(from)
	if err != nil {
		u.t.Fatalf("reading the notes from %d on: %v", from, err)
	}
	if len(got) != len(want) {
		u.t.Fatalf("there are %d notes from %d on, want %d", len(got), from, len(want))
	}
	for i, n := range got {
		if n.Number != want[i].Number || n.Sum != want[i].Sum || !bytes.Equal(n.Data, want[i].Data) {
			u.t.Fatalf("note %d with sum %d and %d bytes came back, want note %d with sum %d and %d bytes (the bytes are equal: %v)",
				n.Number, n.Sum, len(n.Data), want[i].Number, want[i].Sum, len(want[i].Data), bytes.Equal(n.Data, want[i].Data))
		}
	}
}

func notesFrom(first, last uint64) (notes []*sink.Note) {
	for number := first; number <= last; number++ {
		notes = append(notes, makeNote(number, noteSize(number)))
	}
	return notes
}

// expectCommittedNotes fails the test unless exactly the events of notes 1 to last are committed,
// and their notes from first on are kept.
func (t *testEnv) expectCommittedNotes(first, last uint64) {
	t.Helper()
	events := rangesOf(rangeAt(0, last*noteEvents))
	t.expectRows(events)
	t.expectCommitted("a", events)
	u := t.openUnit()
	u.expectStatus(first, last)
	u.expectNotes(0, notesFrom(first, last)...)
}

func notesComeBack(t *testEnv) {
	u := t.openUnit()
	if got := u.status(); got.Last != 0 || got.First != 1 || got.Bytes != 0 {
		t.Errorf("the status of a new unit is %+v", got)
	}
	u.expectNotes(0)
	u.mustWrite(1, 30)
	u.expectNotes(1, notesFrom(1, 30)...)
	u.expectNotes(30, notesFrom(30, 30)...)
	u.expectNotes(31)
	t.expectCommittedNotes(1, 30)
	u = t.openUnit()
	visited, stop := 0, errors.New("stop")
	if err := u.unit.Notes(t.ctx, 5, func(*sink.Note) error { visited++; return stop }); !errors.Is(err, stop) || visited != 1 {
		t.Errorf("%d notes were visited up to the first error, which came back as %v", visited, err)
	}
}

// largeNotesComeBack writes notes that a server may not take at once, and empty ones.
func largeNotesComeBack(t *testEnv) {
	const m = 1 << 20
	u := t.openUnit()
	var want []*sink.Note
	for i, size := range []int{0, 1, 70_000, m, 4*m - 1, 4 * m, 4*m + 1, 0, 9*m + 5, 17 * m} {
		note := makeNote(uint64(i+1), size)
		r := rangeOfNote(note.Number)
		if err := u.writeNote(u.makeEvents(r.First, r.Count), note); err != nil {
			t.Fatalf("writing a note of %d bytes: %v", size, err)
		}
		want = append(want, note)
	}
	u.expectNotes(0, want...)
	t.expectRows(rangesOf(rangeAt(0, uint64(len(want))*noteEvents)))
	note := makeNote(uint64(len(want))+1, 0)
	note.Data = make([]byte, sink.NoteMax+1)
	if err := u.writeNote(u.makeEvents(1000, 1), note); !event.IsPermanent(err) {
		t.Errorf("writing a note of %d bytes returned %v, want a permanent error", len(note.Data), err)
	}
}

func noteIsCommittedWithItsRange(t *testEnv) {
	u := t.openUnit()
	out, note := u.makeEvents(0, noteEvents), makeNote(1, noteSize(1))
	out.Range.Fingerprints = makeFingerprints(0, noteEvents)
	if err := u.writeNote(out, note); err != nil {
		t.Fatal(err)
	}
	overwrite(out)
	clear(note.Data)
	if err := u.writeNote(u.makeOutput(rangeOfNote(2), nil, nil), makeNote(2, noteSize(2))); err != nil {
		t.Fatalf("writing a note without rows: %v", err)
	}
	// Writes without a note go on beside the notes.
	u.write(6, 4)
	if err := u.Verify(t.ctx); err != nil {
		t.Error(err)
	}
	t.expectRows(rangesOf(rangeAt(0, 3), rangeAt(6, 4)))
	next := t.openUnit()
	next.expectNotes(0, notesFrom(1, 2)...)
	next.expectStatus(1, 2)
	expectFingerprints(t, next.committed, rangeAt(0, noteEvents))
	t.expectCommitted("a", rangesOf(rangeAt(0, 10)))
}

// noteOfCommittedRange retries what is committed, as a pipeline does after a crash.
func noteOfCommittedRange(t *testEnv) {
	u := t.openUnit()
	u.mustWrite(1, 3)
	u.mustWrite(2, 3)
	next := t.openUnit()
	next.mustWrite(1, 3)
	// The range decides, whatever the number.
	if err := next.writeNote(next.makeEvents(1, 4), makeNote(7, 10)); err != nil {
		t.Errorf("a note of a committed range: %v", err)
	}
	next.mustWrite(4, 4)
	t.expectCommittedNotes(1, 4)
}

func noteOfPartlyCommittedRange(t *testEnv) {
	u := t.openUnit()
	u.mustWrite(1, 2)
	u.write(12, 3)
	for _, r := range []event.Range{rangeAt(5, 3), rangeAt(0, 7), rangeAt(10, 4), rangeAt(14, 2), rangeAt(6, 20)} {
		for range 2 {
			if err := u.writeNote(u.makeEvents(r.First, r.Count), makeNote(3, noteSize(3))); !event.IsPermanent(err) {
				t.Errorf("a note of %v, partly committed, returned %v, want a permanent error", r, err)
			}
		}
	}
	t.expectRows(rangesOf(rangeAt(0, 6), rangeAt(12, 3)))
	u.expectStatus(1, 2)
	u.mustWrite(3, 3)
	u.expectNotes(0, notesFrom(1, 3)...)
	t.expectCommitted("a", rangesOf(rangeAt(0, 9), rangeAt(12, 3)))
}

// noteOfEmptyRange writes notes without events, such as those of timers: rows and note are
// committed once, which the note's number and sum decide.
func noteOfEmptyRange(t *testEnv) {
	u := t.openUnit()
	u.mustWrite(1, 1)
	timers := func(u *testUnit) *event.Output {
		return u.makeOutput(rangeAt(3, 0), []uint32{0, 1}, []string{makeDocument(1000), makeDocument(1001)})
	}
	for range 3 {
		if err := u.writeNote(timers(u), makeNote(2, noteSize(2))); err != nil {
			t.Fatalf("a note of an empty range: %v", err)
		}
	}
	next := t.openUnit()
	if err := next.writeNote(timers(next), makeNote(2, noteSize(2))); err != nil {
		t.Fatalf("the same one by a new owner: %v", err)
	}
	if err := next.writeNote(timers(next), makeNote(2, 5)); !event.IsPermanent(err) {
		t.Errorf("another note of the same number returned %v, want a permanent error", err)
	}
	if err := u.writeNote(timers(u), makeNote(3, noteSize(3))); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a note of an empty range by the old owner returned %v, want ErrFenced", err)
	}
	t.expectRows(rangesOf(rangeAt(0, 3), rangeAt(1000, 2)))
	next.expectNotes(0, notesFrom(1, 2)...)
	if t.place.Proxy == nil {
		return
	}
	p := t.place.Proxy(t.T)
	u = t.openUnit()
	want := rangesOf(rangeAt(0, 3), rangeAt(1000, 2))
	for i, fault := range []Fault{DropReply, DropRequest, DropReply} {
		p.SetFault(fault)
		id := int64(2000 + i)
		out := u.makeOutput(rangeAt(3, 0), []uint32{0}, []string{makeDocument(id)})
		number := uint64(3 + i)
		err := u.writeNote(out, makeNote(number, noteSize(number)))
		for tries := 0; err != nil; tries++ {
			ExpectClass(t.T, err, Transient)
			if tries == 5 {
				t.Fatalf("still failing after %d attempts: %v", tries, err)
			}
			err = u.writeNote(out, makeNote(number, noteSize(number)))
		}
		want.Add(rangeAt(uint64(id), 1))
	}
	t.expectRows(want)
	u.expectNotes(0, notesFrom(1, 5)...)
}

func noteOutOfSequence(t *testEnv) {
	u := t.openUnit()
	wrong := func(number, last uint64) {
		t.Helper()
		err := u.writeNote(u.makeEvents(100, 3), makeNote(number, 10))
		if !event.IsPermanent(err) {
			t.Fatalf("note %d after %d returned %v, want a permanent error", number, last, err)
		}
		if text := err.Error(); !strings.Contains(text, fmt.Sprint(number)) || !strings.Contains(text, fmt.Sprint(last)) {
			t.Errorf("%q does not name the numbers %d and %d", text, number, last)
		}
	}
	wrong(2, 0)
	u.mustWrite(1, 12)
	for _, number := range []uint64{0, 1, 12, 14, 15, 1 << 40} {
		wrong(number, 12)
	}
	u.mustWrite(13, 13)
	t.expectCommittedNotes(1, 13)
}

func noteWithRejectedRows(t *testEnv) {
	if t.place.RejectedDoc == nil {
		t.Skip("the kind refuses no document")
	}
	u := t.openUnit()
	u.mustWrite(1, 1)
	docs := []string{makeDocument(3), t.place.RejectedDoc(4), makeDocument(5)}
	for range 2 {
		expectRejected(t, u.writeNote(u.makeOutput(rangeOfNote(2), []uint32{0, 1, 2}, docs), makeNote(2, noteSize(2))), []int{1})
		u.expectStatus(1, 1)
	}
	good := []string{docs[0], docs[2]}
	if err := u.writeNote(u.makeOutput(rangeOfNote(2), []uint32{0, 2}, good), makeNote(2, noteSize(2))); err != nil {
		t.Fatalf("writing the good rows: %v", err)
	}
	err := u.writeNote(u.makeOutput(rangeOfNote(3), []uint32{0, 1, 2}, docs), makeNote(9, 5))
	if class := ClassOf(err); class != Permanent && class != Rejected {
		t.Errorf("a rejected row with a note that is not the next returned %v, want a permanent error or the row", err)
	}
	t.expectRows(rangesOf(rangeAt(0, 4), rangeAt(5, 1)))
	u.expectNotes(0, notesFrom(1, 2)...)
	t.expectCommitted("a", rangesOf(rangeAt(0, 6)))
}

// cancelledNote cuts notes off after some checks of the context, and retries them.
func cancelledNote(t *testEnv) {
	u := t.openUnit()
	w := u.Writer.(sink.NoteWriter)
	number := uint64(0)
	for checks := range int32(20) {
		number++
		r := rangeOfNote(number)
		out, note := u.makeEvents(r.First, r.Count), makeNote(number, noteSize(number))
		ctx := newCountdownContext(t.ctx, checks)
		err := w.WriteNote(ctx, out, u.unit, note)
		ctx.cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("a note that was cut off after %d checks of the context returned %v", checks, err)
		}
		if checks == 0 && err == nil {
			t.Error("a note whose context was cancelled at the first check was written")
		}
		if err := u.writeNote(out, note); err != nil {
			t.Fatalf("coming again after %d checks: %v", checks, err)
		}
	}
	t.expectCommittedNotes(1, number)
}

// expectFencedUnit fails the test unless all methods of a unit say that it has another owner.
func (u *testUnit) expectFencedUnit() {
	u.t.Helper()
	_, err := u.unit.Status(u.t.ctx)
	for name, err := range map[string]error{
		"Status": err,
		"Notes":  u.unit.Notes(u.t.ctx, 1, func(*sink.Note) error { return nil }),
		"Trim":   u.unit.Trim(u.t.ctx, 1<<40),
	} {
		if !errors.Is(err, sink.ErrFenced) {
			u.t.Errorf("%s of the old owner returned %v, want ErrFenced", name, err)
		}
	}
}

// unitTakeoverFences takes over the unit alone: the partition's writer commits no note either.
func unitTakeoverFences(t *testEnv) {
	old := t.openUnit()
	old.mustWrite(1, 3)
	before := old.status().Owner
	fresh, err := t.tryOpenUnit("p", "b", "u")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := old.writeNumber(4); !errors.Is(err, sink.ErrFenced) {
			t.Fatalf("the old owner's note returned %v, want ErrFenced", err)
		}
		if err := old.writeNote(old.makeEvents(9, 3), makeNote(9, 1)); !errors.Is(err, sink.ErrFenced) {
			t.Fatalf("the old owner's note out of sequence returned %v, want ErrFenced", err)
		}
	}
	old.expectFencedUnit()
	fresh.expectStatus(1, 3)
	fresh.expectNotes(0, notesFrom(1, 3)...)
	if after := fresh.status().Owner; after == before {
		t.Errorf("both owners are called %q", after)
	}
	t.expectRows(rangesOf(rangeAt(0, 9)))
	next := t.openUnit()
	fresh.expectFencedUnit()
	next.mustWrite(4, 5)
	t.expectCommittedNotes(1, 5)
}

func partitionTakeoverFencesNotes(t *testEnv) {
	old := t.openUnit()
	old.mustWrite(1, 3)
	w := t.openWriter("p", "a")
	if err := old.writeNumber(4); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a note of a partition that another has taken over returned %v, want ErrFenced", err)
	}
	old.expectStatus(1, 3) // the unit still has its owner
	w.write(9, 3)
	old = t.openUnit()
	t.openWriter("p", "a")
	timers := old.makeOutput(rangeAt(12, 0), []uint32{0}, []string{makeDocument(1000)})
	if err := old.writeNote(timers, makeNote(4, noteSize(4))); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a note of an empty range in a partition that another has taken over returned %v, want ErrFenced", err)
	}
	old.expectStatus(1, 3)
	t.expectRows(rangesOf(rangeAt(0, 12)))
}

func unitTakeoverInsideTransaction(t *testEnv) {
	if t.place.Stall == nil {
		t.Skip("no way to hold a write inside its transaction")
	}
	old := t.openUnit()
	old.mustWrite(1, 2)
	hanging, release := t.place.Stall(t.T)
	result := make(chan error, 1)
	go func() { result <- old.writeNumber(3) }()
	hanging()
	s := t.place.Sink(t.T, "p")
	defer s.Close()
	unit, err := s.Traits().Units.OpenUnit(t.ctx, "u") // the partition stays with the old owner
	if err != nil {
		t.Fatal(err)
	}
	defer unit.Close()
	release()
	if err := <-result; !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a note that was inside its transaction returned %v, want ErrFenced", err)
	}
	if status, err := unit.Status(t.ctx); err != nil || status.Last != 2 {
		t.Errorf("the new owner is told %+v, %v; want note 2 as the last", status, err)
	}
	t.expectRows(rangesOf(rangeAt(0, 6)))
	next := t.openUnit()
	next.mustWrite(3, 4)
	t.expectCommittedNotes(1, 4)
}

// unitTakeoversRace has several processes take unit and partition over from each other, and write
// until they are fenced. In the end there are as many notes as ranges.
func unitTakeoversRace(t *testEnv) {
	const processes, until = 4, 100
	var mu sync.Mutex
	random := testseed.New(t)
	var group sync.WaitGroup
	var takeovers, written [processes]int
	// turn takes over, and writes until another process does.
	turn := func(process int) (done bool, err error) {
		u, err := t.tryOpenUnit("p", "a", "u")
		if err != nil {
			return false, err
		}
		defer u.close()
		takeovers[process]++
		status, err := u.unit.Status(t.ctx)
		for number := status.Last + 1; err == nil && number <= until; number++ {
			err = u.writeNumber(number)
			for ClassOf(err) == Transient && t.ctx.Err() == nil { // a takeover ended its connection
				err = u.writeNumber(number)
			}
			if err == nil {
				written[process]++
			}
		}
		return err == nil, err
	}
	for process := range processes {
		group.Go(func() {
			for {
				done, err := turn(process)
				if class := ClassOf(err); class == Permanent || class == Rejected || t.ctx.Err() != nil {
					t.Errorf("process %d: %v, want success, ErrFenced or an error that passes", process, err)
					return
				}
				if done {
					return
				}
				mu.Lock()
				rest := time.Duration(random.IntN(30)) * time.Millisecond
				mu.Unlock()
				time.Sleep(rest) // or nobody would ever write between two takeovers
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	t.Logf("notes by process: %v, takeovers: %v", written, takeovers)
	last := t.openUnit().status().Last
	sum := 0
	for _, n := range written {
		sum += n
	}
	// A writer may learn that it is fenced instead of the outcome of its commit.
	if last != until || uint64(sum) > last {
		t.Errorf("the last note is %d, want %d, and %d were acknowledged", last, until, sum)
	}
	t.expectCommittedNotes(1, last)
}

// unitsAreWrittenAtOnce has a goroutine for each of several units of one sink.
func unitsAreWrittenAtOnce(t *testEnv) {
	const units, notes = 5, 30
	s := t.place.Sink(t.T, "p")
	t.Cleanup(func() { _ = s.Close() })
	var group sync.WaitGroup
	all := make([]*testUnit, units)
	for i := range all {
		group.Go(func() {
			unit, err := s.Traits().Units.OpenUnit(t.ctx, fmt.Sprint("unit ", i))
			if err != nil {
				t.Error(err)
				return
			}
			w, _, err := s.Open(t.ctx, fmt.Sprint("partition ", i))
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = w.Close(); _ = unit.Close() })
			u := &testUnit{&testWriter{Writer: w, t: t, partition: fmt.Sprint("partition ", i), columns: s.Traits().Columns}, s, unit, nil}
			all[i] = u
			for number := uint64(1); number <= notes; number++ {
				r := rangeOfNote(number)
				if err := u.writeNote(u.eventsWithIDs(r, int64(i*notes*noteEvents)), makeNote(number, noteSize(number))); err != nil {
					t.Errorf("unit %d, note %d: %v", i, number, err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	t.expectRows(rangesOf(rangeAt(0, units*notes*noteEvents)))
	for _, u := range all {
		u.expectStatus(1, notes)
		u.expectNotes(0, notesFrom(1, notes)...)
	}
}

// partitionsShareUnit numbers the notes of two partitions in one sequence.
func partitionsShareUnit(t *testEnv) {
	a := t.openUnit()
	w, _, err := a.sink.Open(t.ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	b := &testUnit{&testWriter{Writer: w, t: t, partition: "b", columns: a.columns}, a.sink, a.unit, nil}
	for number := uint64(1); number <= 10; number += 2 {
		r := rangeOfNote(number)
		if err := a.writeNote(a.makeEvents(r.First, r.Count), makeNote(number, noteSize(number))); err != nil {
			t.Fatal(err)
		}
		if err := b.writeNote(b.eventsWithIDs(r, noteEvents), makeNote(number+1, noteSize(number+1))); err != nil {
			t.Fatal(err)
		}
	}
	t.expectRows(rangesOf(rangeAt(0, 10*noteEvents)))
	a.expectStatus(1, 10)
	a.expectNotes(0, notesFrom(1, 10)...)
}

func trimKeepsLastNote(t *testEnv) {
	u := t.openUnit()
	trim := func(before, first, last uint64) {
		t.Helper()
		if err := u.unit.Trim(t.ctx, before); err != nil {
			t.Fatalf("trimming before %d: %v", before, err)
		}
		u.expectStatus(first, last)
		u.expectNotes(0, notesFrom(first, last)...)
	}
	trim(5, 1, 0)
	u.mustWrite(1, 10)
	trim(0, 1, 10)
	trim(1, 1, 10)
	trim(4, 4, 10)
	trim(2, 4, 10)
	trim(7, 7, 10)
	trim(8, 8, 10)
	trim(11, 10, 10)
	trim(1<<63, 10, 10)
	u.mustWrite(11, 12)
	u.expectNotes(12, notesFrom(12, 12)...)
	trim(11, 11, 12)
	old := u
	u = t.openUnit()
	if err := old.unit.Trim(t.ctx, 12); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the old owner's Trim returned %v, want ErrFenced", err)
	}
	u.expectStatus(11, 12)
	u.mustWrite(13, 13)
	t.expectCommittedNotes(11, 13)
}

// trimDuringNotes writes, trims and reads at the same time.
func trimDuringNotes(t *testEnv) {
	const notes = 150
	u := t.openUnit()
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() {
		defer close(done)
		for number := uint64(1); number <= notes; number++ {
			err := u.writeNumber(number)
			for errors.Is(err, sink.ErrConflict) {
				err = u.writeNumber(number)
			}
			if err != nil {
				t.Errorf("writing note %d: %v", number, err)
				return
			}
		}
	})
	atOnce := func(what string, f func() error) {
		group.Go(func() {
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				default:
				}
				if err := f(); err != nil && !errors.Is(err, sink.ErrConflict) {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	atOnce("trimming", func() error {
		status, err := u.unit.Status(t.ctx)
		if err == nil {
			err = u.unit.Trim(t.ctx, status.Last+2)
		}
		return err
	})
	atOnce("reading", func() error {
		previous := uint64(0)
		return u.unit.Notes(t.ctx, 0, func(n *sink.Note) error {
			want := makeNote(n.Number, noteSize(n.Number))
			if n.Number <= previous || n.Sum != want.Sum || !bytes.Equal(n.Data, want.Data) {
				return fmt.Errorf("note %d comes after %d, or is not what was written", n.Number, previous)
			}
			previous = n.Number
			return nil
		})
	})
	group.Wait()
	if err := u.unit.Trim(t.ctx, notes); err != nil {
		t.Error(err)
	}
	t.expectCommittedNotes(notes, notes)
}

// missingNote removes notes behind the sink's back.
func missingNote(t *testEnv) {
	if t.place.RemoveNote == nil {
		t.Skip("no way to remove a note")
	}
	u := t.openUnit()
	u.mustWrite(1, 9)
	damaged := func(from, number uint64) {
		t.Helper()
		notes, err := u.readNotes(from)
		if !event.IsPermanent(err) || !strings.Contains(err.Error(), fmt.Sprint("note ", number)) {
			t.Errorf("reading from %d on returned %v, want a permanent error that names note %d", from, err, number)
		}
		if want := number - from; uint64(len(notes)) != want {
			t.Errorf("%d notes came before note %d, want %d", len(notes), number, want)
		}
	}
	t.place.RemoveNote(t.T, "u", 5)
	damaged(1, 5)
	damaged(5, 5)
	u.expectNotes(6, notesFrom(6, 9)...)
	if err := u.unit.Trim(t.ctx, 6); err != nil {
		t.Fatal(err)
	}
	u.expectNotes(0, notesFrom(6, 9)...)
	t.place.RemoveNote(t.T, "u", 9)
	damaged(7, 9)
	for number := uint64(6); number < 9; number++ {
		t.place.RemoveNote(t.T, "u", number)
	}
	if _, err := u.readNotes(0); !event.IsPermanent(err) {
		t.Errorf("reading without the last note returned %v, want a permanent error", err)
	}
}

// unitNames differ, though some collations or keys would take them for equal.
var unitNames = []string{"u", "U", "u ", " u", "it's", `\'`, "☾", "\u00e9", "e\u0301", "a:b", "a%3Ab", "*", "topic/7", strings.Repeat("☾é", 200)}

func unitsAreShown(t *testEnv) {
	s := t.place.Sink(t.T, "p")
	defer s.Close()
	units := s.Traits().Units
	expect := func(want map[string]sink.UnitStatus) {
		t.Helper()
		got, err := units.Units(t.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for name, status := range got {
			if status.Owner == "" {
				t.Errorf("unit %q has no owner", name)
			}
			status.Owner = ""
			got[name] = status
		}
		if !maps.Equal(got, want) {
			t.Errorf("the units are %+v, want %+v", got, want)
		}
	}
	expect(map[string]sink.UnitStatus{})
	want := map[string]sink.UnitStatus{}
	for i, name := range unitNames {
		unit, err := units.OpenUnit(t.ctx, name)
		if err != nil {
			t.Fatalf("opening unit %q: %v", name, err)
		}
		defer unit.Close()
		w, _, err := s.Open(t.ctx, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		u := &testUnit{&testWriter{Writer: w, t: t, partition: fmt.Sprint(i), columns: s.Traits().Columns}, s, unit, nil}
		status := sink.UnitStatus{First: 1}
		for number := uint64(1); number <= uint64(i); number++ {
			r := rangeOfNote(number)
			if err := u.writeNote(u.makeOutput(r, nil, nil), makeNote(number, noteSize(number))); err != nil {
				t.Fatalf("note %d of unit %q: %v", number, name, err)
			}
			status.Last, status.Bytes = number, status.Bytes+uint64(noteSize(number))
		}
		want[name] = status
	}
	expect(want)
	other, err := t.tryOpenUnit("q", "a", "u")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.writeNote(other.makeOutput(rangeOfNote(1), nil, nil), makeNote(1, 5)); err != nil {
		t.Fatal(err)
	}
	expect(want)
	if _, err := units.OpenUnit(t.ctx, ""); !event.IsPermanent(err) {
		t.Errorf("a unit without a name: %v, want a permanent error", err)
	}
	if _, err := units.OpenUnit(t.ctx, strings.Repeat("x", 1001)); !event.IsPermanent(err) {
		t.Errorf("a name of 1001 bytes: %v, want a permanent error", err)
	}
	expect(want)
}

// unitIsSetBack sets the place back to an older state.
func unitIsSetBack(t *testEnv) {
	if t.place.Snapshot == nil {
		t.Skip("the kind's place cannot be set back")
	}
	u := t.openUnit()
	u.mustWrite(1, 5)
	restore := t.place.Snapshot(t.T)
	u.mustWrite(6, 9)
	restore()
	if status, err := u.unit.Status(t.ctx); !errors.Is(err, sink.ErrFenced) && (err != nil || status.Last != 5) {
		t.Errorf("the status after the place was set back is %+v, %v; want note 5 as the last", status, err)
	}
	for range 2 {
		if err := u.writeNumber(10); !event.IsPermanent(err) && !errors.Is(err, sink.ErrFenced) {
			t.Errorf("the next note after the place was set back returned %v, want a permanent error or ErrFenced", err)
		}
	}
	t.expectRows(rangesOf(rangeAt(0, 15)))
	next := t.openUnit()
	next.expectStatus(1, 5)
	next.mustWrite(6, 7)
	t.expectCommittedNotes(1, 7)
}

// retryNote writes a note until that succeeds.
func (u *testUnit) retryNote(out *event.Output, note *sink.Note) {
	u.t.Helper()
	err := u.writeNote(out, note)
	for tries := 0; err != nil; tries++ {
		ExpectClass(u.t.T, err, Transient)
		if tries == 5 {
			u.t.Fatalf("note %d still fails after %d attempts: %v", note.Number, tries, err)
		}
		err = u.writeNote(out, note)
	}
}

// lostNotes cuts connections at commits: the retry finds range and note together, or neither.
func lostNotes(t *testEnv) {
	if t.place.Proxy == nil {
		t.Skip("the kind has no connections")
	}
	random := testseed.New(t)
	p := t.place.Proxy(t.T)
	u := t.openUnit()
	const notes = 150
	for number := uint64(1); number <= notes; number++ {
		switch random.IntN(6) {
		case 0:
			p.SetFault(DropReply)
		case 1:
			p.SetFault(DropRequest)
		}
		r := rangeOfNote(number)
		u.retryNote(u.makeEvents(r.First, r.Count), makeNote(number, noteSize(number)))
	}
	p.SetFault(NoFault)
	t.expectCommittedNotes(1, notes)
}

// noteArrivesLate lets the server get a note after the owner has given it up and written it again.
func noteArrivesLate(t *testEnv) {
	if t.place.Proxy == nil {
		t.Skip("the kind has no connections")
	}
	p := t.place.Proxy(t.T)
	u := t.openUnit()
	u.mustWrite(1, 1)
	p.SetFault(Delay)
	ExpectClass(t.T, u.writeNumber(2), Transient)
	u.mustWrite(2, 3)
	t.deliverLate(p)
	u.mustWrite(4, 4)
	t.expectCommittedNotes(1, 4)
}

// unitModel compares random sequences with a plain model.
func unitModel(t *testEnv) {
	random := testseed.New(t)
	var p *Proxy
	if t.place.Proxy != nil {
		p = t.place.Proxy(t.T)
	}
	var old []*testUnit
	u := t.openUnit()
	first, last := uint64(1), uint64(0)
	expectFenced := func(step int, what string, err error) {
		if !errors.Is(err, sink.ErrFenced) {
			t.Fatalf("step %d: %s of an old owner returned %v, want ErrFenced", step, what, err)
		}
	}
	for step := range 250 {
		switch n := random.IntN(20); {
		case n < 9:
			if p != nil {
				p.SetFault([]Fault{NoFault, NoFault, DropReply, DropRequest}[random.IntN(4)])
			}
			last++
			r := rangeOfNote(last)
			u.retryNote(u.makeEvents(r.First, r.Count), makeNote(last, noteSize(last)))
			if p != nil {
				p.SetFault(NoFault)
			}
		case n < 11 && last > 0:
			number := 1 + random.Uint64N(last)
			if err := u.writeNumber(number); err != nil {
				t.Fatalf("step %d: note %d of %d again: %v", step, number, last, err)
			}
		case n < 12:
			number := last + 2 + random.Uint64N(3)
			if err := u.writeNumber(number); !event.IsPermanent(err) {
				t.Fatalf("step %d: note %d after %d returned %v, want a permanent error", step, number, last, err)
			}
		case n < 13 && last > 0:
			r := rangeAt(last*noteEvents-1, 1+noteEvents)
			if err := u.writeNote(u.makeEvents(r.First, r.Count), makeNote(last+1, 1)); !event.IsPermanent(err) {
				t.Fatalf("step %d: a note of %v returned %v, want a permanent error", step, r, err)
			}
		case n < 15:
			before := random.Uint64N(last + 3)
			if err := u.unit.Trim(t.ctx, before); err != nil {
				t.Fatalf("step %d: trimming before %d: %v", step, before, err)
			}
			first = max(first, min(before, max(last, 1)))
		case n < 17:
			if old = append(old, u); len(old) > 4 {
				old[0].close()
				old = old[1:]
			}
			u = t.openUnit()
		case n < 18 && len(old) > 0:
			before := old[random.IntN(len(old))]
			expectFenced(step, "the next note", before.writeNumber(last+1))
			expectFenced(step, "Trim", before.unit.Trim(t.ctx, last))
		case n < 19:
			from := random.Uint64N(last + 3)
			u.expectNotes(from, notesFrom(max(from, first), last)...)
		default:
			u.expectStatus(first, last)
		}
		if t.Failed() {
			t.Fatalf("step %d", step)
		}
	}
	t.expectCommittedNotes(first, last)
	if len(old) == 0 || last == 0 || slices.Contains(old, u) {
		t.Errorf("%d takeovers and %d notes are no test", len(old), last)
	}
}
