package outbox

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/leaktest"
)

func open(t *testing.T, folder string) *Store {
	t.Helper()
	s, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// entryOf returns an entry with two outputs of the same documents, one with columns and one
// without, and a third output of other documents.
func entryOf(pipeline, partition string, first uint64) *Entry {
	spec := []event.Column{{Name: "n", Path: []string{"a", "n"}, Type: event.Int64, Required: true}, {Name: "s", Path: []string{"s"}, Type: event.String}}
	e := &Entry{
		Pipeline: pipeline, Script: "test.lua 7", Sinks: []string{"one", "two", "three"},
		Batch: event.Batch{Partition: partition, Range: event.Range{First: first, Count: 2, Fingerprints: []uint32{7, 8}}},
	}
	e.Batch.Append([]byte(`{"a":{"n":1}}`))
	e.Batch.Append([]byte(`bad`))
	docs := event.Output{
		Partition: partition, Range: e.Batch.Range,
		Data: []byte(`{"n":1}{"n":2}`), Ends: []uint32{7, 14}, From: []uint32{0, 0},
	}
	typed := docs
	typed.Columns = &event.Columns{Spec: spec, Rows: 2, Vectors: []event.Vector{
		{Null: []uint8{0, 0}, Ints: []int64{1, -2}},
		{Null: []uint8{1, 0}, Bytes: []byte("x"), Ends: []uint32{0, 1}},
	}}
	other := event.Output{Partition: partition, Range: e.Batch.Range, Data: []byte(`{}`), Ends: []uint32{2}, From: []uint32{0}}
	e.Result = event.Result{
		Outputs: []event.Output{docs, typed, other}, Ran: 2, Dropped: 1,
		Dead: []event.DeadLetter{{Position: first + 1, Stage: "parse", Error: "no object", Original: []byte("bad")}},
	}
	return e
}

func all(t *testing.T, s *Store, pipeline, partition string) (found []*Entry) {
	t.Helper()
	for e, err := range s.Entries(pipeline, partition) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, e)
	}
	return found
}

func firsts(t *testing.T, s *Store, pipeline, partition string) (found []uint64) {
	t.Helper()
	for _, e := range all(t, s, pipeline, partition) {
		found = append(found, e.Batch.Range.First)
	}
	return found
}

func put(t *testing.T, s *Store, entries ...*Entry) {
	t.Helper()
	for _, e := range entries {
		if err := s.Put(e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEntriesComeBackAsTheyWere(t *testing.T) {
	folder := t.TempDir()
	if Exists(folder) {
		t.Error("there is an outbox before it is opened")
	}
	s := open(t, folder)
	want := entryOf("p", "a", 40)
	put(t, s, want)
	if want.Result.Outputs[1].Data == nil {
		t.Error("putting an entry changed it")
	}
	closed(t, s)
	if !Exists(folder) {
		t.Error("there is no outbox after it was opened")
	}
	s = open(t, folder)
	defer closed(t, s)
	if diff := cmp.Diff([]*Entry{want}, all(t, s, "p", "a")); diff != "" {
		t.Error(diff)
	}
	found := all(t, s, "p", "a")[0]
	found.Result.Outputs[0].Data[0] = '#'
	if found.Result.Outputs[1].Data[0] == '#' {
		t.Error("two outputs share memory")
	}
}

func TestOrderAndNames(t *testing.T) {
	s := open(t, t.TempDir())
	defer closed(t, s)
	put(t, s, entryOf("p", "a", 300), entryOf("p", "a", 2), entryOf("p", "ab", 5),
		entryOf("p", "a\x01", 9), entryOf("pa", "", 1), entryOf("q", "a", 7))
	if diff := cmp.Diff([]uint64{2, 300}, firsts(t, s, "p", "a")); diff != "" {
		t.Error(diff)
	}
	names, err := s.Partitions("p")
	slices.Sort(names)
	if diff := cmp.Diff([]string{"a", "a\x01", "ab"}, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got := all(t, s, "p", "b"); len(got) != 0 {
		t.Errorf("%d entries of a partition that has none", len(got))
	}
	if err := s.RemovePartition("p", "a"); err != nil {
		t.Fatal(err)
	}
	names, err = s.Partitions("p")
	slices.Sort(names)
	if diff := cmp.Diff([]string{"a\x01", "ab"}, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestRemovals(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	put(t, s, entryOf("p", "a", 1), entryOf("p", "a", 3), entryOf("p", "a", 5))
	s.Remove("p", "a", 3)
	if diff := cmp.Diff([]uint64{1, 5}, firsts(t, s, "p", "a")); diff != "" {
		t.Error(diff)
	}
	// An entry that is stored after its removal stays.
	s.Remove("p", "a", 1)
	put(t, s, entryOf("p", "a", 1))
	s.Remove("p", "a", 5)
	closed(t, s)
	s = open(t, folder)
	defer closed(t, s)
	if diff := cmp.Diff([]uint64{1}, firsts(t, s, "p", "a")); diff != "" {
		t.Error(diff)
	}
}

func TestWritersAtOnce(t *testing.T) {
	const writers, each = 8, 20
	s := open(t, t.TempDir())
	defer closed(t, s)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			partition := fmt.Sprint(w)
			for i := range uint64(each) {
				if err := s.Put(entryOf("p", partition, i)); err != nil {
					t.Error(err)
				}
				if i%3 != 0 {
					s.Remove("p", partition, i)
				}
			}
		})
	}
	group.Wait()
	for w := range writers {
		if diff := cmp.Diff([]uint64{0, 3, 6, 9, 12, 15, 18}, firsts(t, s, "p", fmt.Sprint(w))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestOneOwner(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	defer closed(t, s)
	if other, err := Open(folder); err == nil {
		other.Close()
		t.Error("an outbox was opened twice")
	}
}

// TestClosesItsFile: a closed outbox, and one that cannot be opened, has no file open.
func TestClosesItsFile(t *testing.T) {
	folder := t.TempDir()
	leaktest.Closed(t, folder, func() {
		s := open(t, folder)
		put(t, s, entryOf("p", "a", 1))
		if other, err := Open(folder); err == nil {
			other.Close()
			t.Error("an outbox was opened twice")
		}
		s.Remove("p", "a", 1)
		closed(t, s)
	})
}
