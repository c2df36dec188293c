package sinktest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A noteReader reads the notes of units that it does not own, as a process of its own.
type noteReader struct {
	t     *testEnv
	units sink.UnitStore
}

func (t *testEnv) newNoteReader(pipeline string) *noteReader {
	s := t.place.Sink(t.T, pipeline)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the reader's sink: %v", err)
		}
	})
	return &noteReader{t, s.Traits().Units}
}

// read returns the numbers of the notes of unit u from one on, which must be what was written.
func (r *noteReader) read(from uint64) (numbers []uint64, err error) {
	err = r.units.ReadNotes(r.t.ctx, "u", from, func(n *sink.Note) error {
		want := makeNote(n.Number, noteSize(n.Number))
		if n.Sum != want.Sum || !bytes.Equal(n.Data, want.Data) {
			return fmt.Errorf("note %d has sum %d and %d bytes, want %d and %d", n.Number, n.Sum, len(n.Data), want.Sum, len(want.Data))
		}
		numbers = append(numbers, n.Number)
		return nil
	})
	return numbers, err
}

// expect fails the test unless the notes from a number on are those from first to last.
func (r *noteReader) expect(from, first, last uint64) {
	r.t.Helper()
	got, err := r.read(from)
	if err != nil {
		r.t.Fatalf("reading the notes from %d on: %v", from, err)
	}
	if uint64(len(got)) != last+1-first || len(got) > 0 && (got[0] != first || got[len(got)-1] != last) {
		r.t.Fatalf("reading from %d on: got notes %v, want %d to %d", from, got, first, last)
	}
}

func (r *noteReader) expectLast(want map[string]uint64) {
	r.t.Helper()
	if got, err := r.units.LastNotes(r.t.ctx); err != nil || !maps.Equal(got, want) {
		r.t.Errorf("the last notes are %v, %v; want %v", got, err, want)
	}
}

// othersReadNotes reads the notes of a unit beside its owner, which is not disturbed.
func othersReadNotes(t *testEnv) {
	r := t.newNoteReader("p")
	r.expectLast(map[string]uint64{})
	r.expect(0, 1, 0)
	u := t.openUnit()
	r.expectLast(map[string]uint64{"u": 0})
	r.expect(1, 1, 0)
	u.mustWrite(1, 20)
	for _, from := range []uint64{0, 1} {
		r.expect(from, 1, 20)
	}
	r.expect(20, 20, 20)
	r.expect(21, 21, 20)
	u.mustWrite(21, 22)
	r.expect(21, 21, 22)
	r.expectLast(map[string]uint64{"u": 22})
	if err := u.unit.Trim(t.ctx, 11); err != nil {
		t.Fatal(err)
	}
	r.expect(11, 11, 22)
	for _, from := range []uint64{0, 1, 10} {
		if got, err := r.read(from); !errors.Is(err, sink.ErrNotesTrimmed) || event.IsPermanent(err) || len(got) > 0 {
			t.Errorf("reading from %d on: got notes %v and %v, want ErrNotesTrimmed", from, got, err)
		}
	}
	stop, visited := errors.New("stop"), 0
	if err := r.units.ReadNotes(t.ctx, "u", 12, func(*sink.Note) error { visited++; return stop }); !errors.Is(err, stop) || visited != 1 {
		t.Errorf("%d notes were visited up to the first error, which came back as %v", visited, err)
	}
	for _, name := range unitNames {
		if name != "u" {
			if err := r.units.ReadNotes(t.ctx, name, 0, func(*sink.Note) error { return stop }); err != nil {
				t.Errorf("reading unit %q, which does not exist: %v", name, err)
			}
		}
	}
	if err := r.units.ReadNotes(t.ctx, "", 0, func(*sink.Note) error { return nil }); !event.IsPermanent(err) {
		t.Errorf("reading a unit without a name: %v, want a permanent error", err)
	}
	other := t.newNoteReader("q")
	other.expectLast(map[string]uint64{})
	other.expect(0, 1, 0)
	u.mustWrite(23, 23) // the owner goes on
	next := t.openUnit()
	r.expect(11, 11, 23)
	next.mustWrite(24, 24)
	r.expect(24, 24, 24)
	if t.place.RemoveNote == nil {
		return
	}
	t.place.RemoveNote(t.T, "u", 15)
	if got, err := r.read(11); !event.IsPermanent(err) || errors.Is(err, sink.ErrNotesTrimmed) || len(got) != 4 {
		t.Errorf("reading over a missing note: got notes %v and %v, want 4 and a permanent error", got, err)
	}
}

// trimOvertakesReader follows a unit whose owner trims. The reader gets all notes in order until it
// is told that it is too far behind.
func trimOvertakesReader(t *testEnv) {
	const notes = 120
	u, r := t.openUnit(), t.newNoteReader("p")
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() {
		defer close(done)
		for number := uint64(1); number <= notes; number++ {
			err := u.writeNumber(number)
			for errors.Is(err, sink.ErrConflict) {
				err = u.writeNumber(number)
			}
			if err == nil && number%10 == 0 {
				err = u.unit.Trim(t.ctx, number-5)
			}
			if err != nil && !errors.Is(err, sink.ErrConflict) {
				t.Errorf("note %d: %v", number, err)
				return
			}
		}
	})
	next, trimmed, ended := uint64(1), 0, false
	for !ended {
		select {
		case <-done:
			ended = true // after one more reading
		default:
		}
		got, err := r.read(next)
		for _, number := range got {
			if number != next {
				t.Fatalf("note %d came, want %d", number, next)
			}
			next++
		}
		switch {
		case errors.Is(err, sink.ErrNotesTrimmed):
			trimmed++
			units, err := r.units.Units(t.ctx)
			if err != nil {
				t.Fatal(err)
			}
			next, ended = max(next+1, units["u"].First), false
		case err != nil && !errors.Is(err, sink.ErrConflict):
			t.Fatalf("reading from %d on: %v", next, err)
		}
	}
	group.Wait()
	if next != notes+1 {
		t.Errorf("the reader came to note %d, want %d; it was overtaken %d times", next-1, notes, trimmed)
	}
}
