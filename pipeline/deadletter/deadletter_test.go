package deadletter

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/leaktest"
)

func open(t *testing.T, folder string) *Store {
	t.Helper()
	s, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func replace(t *testing.T, s *Store, pipeline, partition string, r event.Range, dead ...event.Dead) {
	t.Helper()
	if err := s.Replace(pipeline, partition, r, dead); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, s *Store, f Filter) []Letter {
	t.Helper()
	var all []Letter
	for l, err := range s.List(f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// names describes letters briefly.
func names(letters []Letter) []string {
	var all []string
	for _, l := range letters {
		all = append(all, fmt.Sprintf("%s %s %d.%d %s", l.Pipeline, l.Partition, l.Position, l.Number, l.Error))
	}
	return all
}

func dead(position uint64, why string) event.Dead {
	return event.Dead{Position: position, Stage: "script", Error: why}
}

func TestLettersKeepTheirFields(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	letters := []event.Dead{
		{Position: 1, Stage: "parse", Error: "not JSON", Original: []byte("\xff\x00{")},
		{Position: 2, Stage: "script", Error: "nil value", Traceback: "stack:\n\tmain", Script: "a.lua 1f", Original: []byte(`{"a":"ä\u2028<"}`)},
		{Position: 2, Sink: "pg", Number: 3, Stage: "column", Error: "too long", Original: []byte("\u2028\ufffd")},
		{Position: 3, Stage: "sink", Error: "empty", Original: []byte{}},
	}
	before := time.Now()
	replace(t, s, "p", "list#1", event.Range{First: 0, Count: 10}, letters...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, l := range list(t, open(t, folder), Filter{}) {
		if diff := cmp.Diff(letters[i], l.Dead); diff != "" {
			t.Error(diff)
		}
		if l.Pipeline != "p" || l.Partition != "list#1" || l.Time.Before(before.Truncate(0)) || time.Since(l.Time) > time.Minute {
			t.Errorf("letter of %s, %s, %s", l.Pipeline, l.Partition, l.Time)
		}
	}
}

// Entries are legible to a person who opens the file with a tool.
func TestEntriesAreLegible(t *testing.T) {
	for original, want := range map[string]string{
		`{"a":1}`: `"original":"{\"a\":1}"`,
		"\xff":    `"original_base64":"/w=="`,
	} {
		d := dead(0, "no")
		d.Original = []byte(original)
		l := Letter{Partition: "a", First: time.Unix(0, 0), Time: time.Unix(0, 0), Dead: d}
		text, err := l.encode("a", 0)
		if err != nil {
			t.Fatal(err)
		}
		want = `{"number":0,"time":"1970-01-01T00:00:00Z","stage":"script","error":"no",` + want + `,"sum":`
		if !strings.HasPrefix(string(text), want) {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
}

// TestDamagedLetters changes each byte of a stored letter, and reads it at another position: none
// of that is a letter. One without a checksum is from an older version.
func TestDamagedLetters(t *testing.T) {
	want := Letter{Pipeline: "p", Partition: "a", First: time.Unix(0, 0).UTC(), Time: time.Unix(9, 0).UTC(), Dead: dead(7, "no")}
	want.Error, want.Original = `a text with ,"sum":3}`, []byte("event")
	value, err := want.encode("a", 7)
	if err != nil {
		t.Fatal(err)
	}
	at := location{[]byte("p"), []byte("a"), letterKey(7, 0)}
	if got, err := decodeLetter(at, value); err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	for i := range value {
		changed := bytes.Clone(value)
		changed[i] ^= 1
		if got, err := decodeLetter(at, changed); err == nil && !cmp.Equal(want, got) || err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("byte %d of %s is changed: %+v, %v", i, value, got, err)
		}
	}
	at.key = letterKey(8, 0)
	if _, err := decodeLetter(at, value); !errors.Is(err, errDamaged) {
		t.Errorf("at another position: %v", err)
	}
	older := append(value[:bytes.LastIndex(value, []byte(sumField))], '}')
	at.key = letterKey(7, 0)
	if got, err := decodeLetter(at, older); err != nil || !cmp.Equal(want, got) {
		t.Errorf("without a checksum: %v: %s", err, cmp.Diff(want, got))
	}
}

// TestReplaceAgainstModel compares the store with a map, over ranges that
// overlap in every way.
func TestReplaceAgainstModel(t *testing.T) {
	s := open(t, t.TempDir())
	s.db.NoSync = true
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		pipeline := fmt.Sprint("p", round)
		model := make(map[string][]string)
		at := func(partition string, position uint64) string { return fmt.Sprintf("%s %03d", partition, position) }
		for step := range rapid.IntRange(1, 8).Draw(rt, "steps") {
			partition := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "partition")
			r := event.Range{First: rapid.Uint64Range(0, 30).Draw(rt, "first"), Count: rapid.Uint64Range(0, 10).Draw(rt, "count")}
			var letters []event.Dead
			for position := r.First; position < r.End(); position++ {
				delete(model, at(partition, position))
				for n := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(rt, "dead") {
					d := dead(position, fmt.Sprint("step ", step))
					d.Number = uint32(n)
					letters = append(letters, d)
					model[at(partition, position)] = append(model[at(partition, position)],
						fmt.Sprintf("%s %s %d.%d %s", pipeline, partition, position, n, d.Error))
				}
			}
			replace(t, s, pipeline, partition, r, letters...)
		}
		for _, partition := range []string{"a", "b"} {
			var want []string
			for position := range uint64(50) {
				want = append(want, model[at(partition, position)]...)
			}
			if diff := cmp.Diff(want, names(list(t, s, Filter{Pipeline: pipeline, Partition: partition}))); diff != "" {
				rt.Fatal(diff)
			}
		}
	})
}

func TestListFilters(t *testing.T) {
	s := open(t, t.TempDir())
	r := event.Range{Count: 1000}
	var many []event.Dead
	for i := range uint64(600) {
		many = append(many, dead(i, "x"))
	}
	many[7].Stage, many[7].Original = "sink", []byte(`{"name":"Ä b"}`)
	many[8].Sink = "audit"
	many[599].Stage = "sink"
	replace(t, s, "a", "1", r, many...)
	replace(t, s, "a", "2", r, dead(5, "x"))
	replace(t, s, "b", "1", r, dead(5, "x"), dead(6, "x"))
	for _, test := range []struct {
		filter Filter
		count  int
		last   string
	}{
		{Filter{}, 603, "b 1 6.0 x"},
		{Filter{Pipeline: "a"}, 601, "a 2 5.0 x"},
		{Filter{Partition: "1"}, 602, "b 1 6.0 x"},
		{Filter{Pipeline: "a", Partition: "1", Stage: "sink"}, 2, "a 1 599.0 x"},
		{Filter{Pipeline: "c"}, 0, ""},
		{Filter{Sink: "audit"}, 1, "a 1 8.0 x"},
		{Filter{Text: "ä B"}, 1, "a 1 7.0 x"},
		{Filter{Text: "X"}, 603, "b 1 6.0 x"},
		{Filter{Since: time.Now().Add(time.Minute)}, 0, ""},
		{Filter{Before: time.Now().Add(time.Minute), Since: time.Now().Add(-time.Minute)}, 603, "b 1 6.0 x"},
		{Filter{Before: time.Now().Add(-time.Minute)}, 0, ""},
	} {
		got := names(list(t, s, test.filter))
		if len(got) != test.count || test.count > 0 && got[len(got)-1] != test.last {
			t.Errorf("%+v: %d letters, the last %v", test.filter, len(got), got[max(0, len(got)-1):])
		}
		if n, err := s.Count(test.filter); n != test.count || err != nil {
			t.Errorf("%+v: counted %d, %v", test.filter, n, err)
		}
	}
}

// A caller of List may call Replace in the loop: a transaction that is open over the
// loop would deadlock.
func TestReplaceWhileListing(t *testing.T) {
	s := open(t, t.TempDir())
	s.db.NoSync = true
	big := dead(0, "big")
	big.Original = bytes.Repeat([]byte("x"), 64<<10)
	for i := range uint64(50) {
		big.Position = i
		replace(t, s, "p", "a", event.Range{First: i, Count: 1}, big)
	}
	n := 0
	for l, err := range s.List(Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		replace(t, s, "p", "a", event.Range{First: l.Position, Count: 1})
		n++
	}
	if left, err := s.Count(Filter{}); n != 50 || left != 0 || err != nil {
		t.Errorf("%d listed and removed, %d left, %v", n, left, err)
	}
}

// syncs returns the number of writes so far.
func syncs(s *Store) int64 {
	stats := s.db.Stats()
	return stats.TxStats.GetWrite()
}

func TestNothingToDoWritesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	replace(t, s, "p", "a", event.Range{First: 10, Count: 10}, dead(15, "x"))
	before := syncs(s)
	replace(t, s, "p", "a", event.Range{First: 0, Count: 15})
	replace(t, s, "p", "a", event.Range{First: 16, Count: 100})
	replace(t, s, "p", "b", event.Range{First: 0, Count: 100})
	replace(t, s, "q", "a", event.Range{First: 0, Count: 100})
	if n := syncs(s) - before; n != 0 {
		t.Errorf("%d pages written", n)
	}
	replace(t, s, "p", "a", event.Range{First: 15, Count: 1})
	if syncs(s) == before {
		t.Error("a removal wrote nothing")
	}
}

func TestWritersShareCommits(t *testing.T) { synctest.Test(t, writersShareCommits) }

func writersShareCommits(t *testing.T) {
	s := open(t, t.TempDir())
	id := func() (id int) {
		if err := s.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := id()
	var writers sync.WaitGroup
	slow := make(chan struct{}) // a commit that takes its time
	writers.Go(func() {
		if err := s.commit(func(*bolt.Tx) error { <-slow; return nil }); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	for i := range uint64(20) {
		writers.Go(func() { replace(t, s, "p", "a", event.Range{First: i, Count: 1}, dead(i, "x")) })
	}
	synctest.Wait()
	close(slow)
	writers.Wait()
	if n := id() - first; n != 2 {
		t.Errorf("20 writers took %d transactions after the slow one, want 1", n-1)
	}
	if n, err := s.Count(Filter{}); n != 20 || err != nil {
		t.Errorf("%d letters, %v", n, err)
	}
}

func TestRefusals(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	r := event.Range{First: 10, Count: 5}
	for _, d := range []event.Dead{dead(9, "x"), dead(15, "x")} {
		if err := s.Replace("p", "a", r, []event.Dead{d}); err == nil || !strings.Contains(err.Error(), "outside the range") {
			t.Errorf("%v: %v", d, err)
		}
	}
	if err := s.Replace("", "a", r, nil); err == nil {
		t.Error("a pipeline without a name was taken")
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "one engine owns a data folder") {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := Open(filepath.Join(folder, "none")); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("opened in no folder: %v", err)
	}
}

func unwrapAll(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || os.IsNotExist(err) {
			return err
		}
		err = inner.Unwrap()
	}
}

// TestClosesItsFile: a closed store has no file open.
func TestClosesItsFile(t *testing.T) {
	folder := t.TempDir()
	leaktest.Closed(t, folder, func() {
		s := open(t, folder)
		replace(t, s, "p", "a", event.Range{Count: 1}, dead(0, "no"))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestChangedLettersAreLeftAlone: a letter that was replaced, or is gone, since its page was read
// is neither retried nor purged.
func TestChangedLettersAreLeftAlone(t *testing.T) {
	s := open(t, t.TempDir())
	replace(t, s, "p", "a", event.Range{Count: 3}, dead(0, "kept"), dead(1, "replaced"), dead(2, "gone"))
	replace(t, s, "p", "b", event.Range{Count: 1}, dead(0, "its partition is gone"))
	var pages [][]storedLetter
	for page, err := range s.readPages(Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, page)
	}
	replace(t, s, "p", "a", event.Range{First: 1, Count: 2}, dead(1, "another"))
	if _, err := s.Purge(Filter{Partition: "b"}); err != nil {
		t.Fatal(err)
	}
	var updated []string
	for _, page := range pages {
		err := s.updatePage(page, func(_ *bolt.Tx, l *storedLetter) error {
			updated = append(updated, l.Error)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"kept"}, updated); diff != "" {
		t.Error(diff)
	}
}
