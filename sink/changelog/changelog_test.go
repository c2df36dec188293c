package changelog

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := writeAndTrim(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, folder string) *Store {
	t.Helper()
	s, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Place {
		s := open(t, t.TempDir())
		return sinktest.Place{
			Guarantee: sink.ExactlyOnce,
			NoRows:    true,
			Sink:      func(_ *testing.T, pipeline string) sink.Sink { return s.Sink(pipeline, nil) },
			RemoveNote: func(t *testing.T, unit string, number uint64) {
				alter(t, s, func(tx *bolt.Tx) error { return tx.Bucket(notesBucket).Delete(noteKey("p", unit, number)) })
			},
		}
	})
}

func alter(t *testing.T, s *Store, f func(tx *bolt.Tx) error) {
	t.Helper()
	if err := s.file.Update(f); err != nil {
		t.Fatal(err)
	}
}

// openUnit opens unit u and partition a of pipeline p.
func openUnit(t *testing.T, s *Store) (sink.NoteWriter, event.Ranges, sink.Unit) {
	t.Helper()
	to := s.Sink("p", nil)
	unit, err := to.OpenUnit(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	w, committed, err := to.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return w.(sink.NoteWriter), committed, unit
}

func output(number uint64) *event.Output {
	return &event.Output{Partition: "a", Range: event.Range{First: number - 1, Count: 1, Fingerprints: []uint32{uint32(number)}}}
}

// noteOf makes a note of several pages now and then.
func noteOf(number uint64) *sink.Note {
	return &sink.Note{Number: number, Sum: number * 7, Data: []byte(strings.Repeat(fmt.Sprint(number), int(number%5)*1000+1))}
}

// TestReopen finds in the file what another process has committed.
func TestReopen(t *testing.T) {
	folder := t.TempDir()
	if Exists(folder) {
		t.Error("there is a changelog in an empty folder")
	}
	s, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("opening it twice: %v", err)
	}
	w, _, unit := openUnit(t, s)
	for number := uint64(1); number <= 5; number++ {
		if err := w.WriteNote(t.Context(), output(number), unit, noteOf(number)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unit.Trim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteNote(t.Context(), output(6), unit, noteOf(6)); err == nil {
		t.Error("a note was written to a closed file")
	}
	s = open(t, folder)
	if !Exists(folder) {
		t.Error("there is no changelog")
	}
	_, committed, unit := openUnit(t, s)
	if !committed.Covers(0, 5) || committed.Has(5) || len(committed[0].Fingerprints) != 5 {
		t.Errorf("committed: %v", committed)
	}
	status, err := unit.Status(t.Context())
	if err != nil || status.First != 3 || status.Last != 5 {
		t.Errorf("the unit is %+v, %v", status, err)
	}
}

// TestDamage changes each kind of value: the error names it, and others go on.
func TestDamage(t *testing.T) {
	for _, bucket := range buckets {
		t.Run(string(bucket), func(t *testing.T) {
			s := open(t, t.TempDir())
			w, _, unit := openUnit(t, s)
			if err := w.WriteNote(t.Context(), output(1), unit, noteOf(1)); err != nil {
				t.Fatal(err)
			}
			alter(t, s, func(tx *bolt.Tx) error {
				k, v := tx.Bucket(bucket).Cursor().First()
				spoilt := append([]byte(nil), v...)
				spoilt[len(spoilt)/3] ^= 4
				return tx.Bucket(bucket).Put(append([]byte(nil), k...), spoilt)
			})
			errNotes := unit.Notes(t.Context(), 0, func(*sink.Note) error { return nil })
			to := s.Sink("p", nil)
			_, errOpen := to.OpenUnit(t.Context(), "u")
			_, _, errPartition := to.Open(t.Context(), "a")
			damaged := 0
			for _, err := range []error{errOpen, errPartition, errNotes} {
				if event.IsPermanent(err) && strings.Contains(err.Error(), FileName) && event.HintOf(err) != "" {
					damaged++
				}
			}
			if damaged == 0 {
				t.Errorf("no error names the damage: %v, %v, %v", errOpen, errPartition, errNotes)
			}
			if _, _, err := s.Sink("q", nil).Open(t.Context(), "a"); err != nil {
				t.Errorf("another pipeline: %v", err)
			}
		})
	}
}

// TestForeignUnit refuses the note of a unit of another sink.
func TestForeignUnit(t *testing.T) {
	s := open(t, t.TempDir())
	w, _, _ := openUnit(t, s)
	other, err := s.Sink("p", nil).OpenUnit(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	sinktest.ExpectClass(t, w.WriteNote(context.Background(), output(1), other, noteOf(1)), sinktest.Permanent)
}
