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
	"github.com/perigeedb/perigee/internal/boltfile"
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

func replace(t *testing.T, s *Store, pipeline, partition string, r event.Range, dead ...event.DeadLetter) {
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

func dead(position uint64, why string) event.DeadLetter {
	return event.DeadLetter{Position: position, Stage: "script", Error: why}
}

func TestLettersKeepTheirFields(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	letters := []event.DeadLetter{
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
		if diff := cmp.Diff(letters[i], l.DeadLetter); diff != "" {
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
		l := Letter{Pipeline: "p", Partition: "a", First: time.Unix(0, 0), Time: time.Unix(0, 0), DeadLetter: d}
		text, err := l.encode(location{[]byte("p"), []byte("a"), letterKey(0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		want = `{"number":0,"time":"1970-01-01T00:00:00Z","stage":"script","error":"no",` + want + "}"
		if !strings.HasPrefix(string(text), want) {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
}

// TestDamagedLetters changes each byte of a stored letter, and reads it at other locations: none
// of that is a letter. One without a checksum is from an older version.
func TestDamagedLetters(t *testing.T) {
	want := Letter{Pipeline: "p", Partition: "a", First: time.Unix(0, 0).UTC(), Time: time.Unix(9, 0).UTC(), DeadLetter: dead(7, "no")}
	want.Original = []byte("event")
	at := location{[]byte("p"), []byte("a"), letterKey(7, 0)}
	value, err := want.encode(at)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeLetter(at, value); err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	for i := range value {
		changed := bytes.Clone(value)
		changed[i] ^= 4 // makes a tab of a carriage return
		if got, err := decodeLetter(at, changed); !errors.Is(err, boltfile.ErrDamagedValue) {
			t.Errorf("byte %d of %q is changed: %+v, %v", i, value, got, err)
		}
	}
	for _, other := range []location{
		{[]byte("q"), at.partition, at.key}, {at.pipeline, []byte("b"), at.key}, {at.pipeline, at.partition, letterKey(8, 0)}, {at.pipeline, at.partition, letterKey(7, 1)},
	} {
		if _, err := decodeLetter(other, value); !errors.Is(err, boltfile.ErrDamagedValue) {
			t.Errorf("at %q: %v", other, err)
		}
	}
	older := value[:bytes.LastIndexByte(value, '}')+1]
	if got, err := decodeLetter(at, older); err != nil || !cmp.Equal(want, got) {
		t.Errorf("without a checksum: %v: %s", err, cmp.Diff(want, got))
	}
}

// damage changes a byte of a stored value.
func damage(t *testing.T, s *Store, key []byte, path ...[]byte) {
	t.Helper()
	err := s.db.Update(func(tx *bolt.Tx) error {
		b := findBucket(tx, path...)
		value := bytes.Clone(b.Get(key))
		value[len(value)/2] ^= 1
		return b.Put(key, value)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneDamagedLetter: the letters beside a damaged one are listed, retried and purged. It is
// listed as damaged, not retried, and purged by its ID.
func TestOneDamagedLetter(t *testing.T) {
	s := open(t, t.TempDir())
	keep(t, s, "a", dead(1, "first"), dead(2, "to be damaged"), dead(2, "beside it"), dead(3, "last"))
	damage(t, s, letterKey(2, 0), []byte("p"), []byte("a"))
	var damaged Letter
	var errs []string
	for _, l := range list(t, s, Filter{}) {
		if l.Damaged {
			damaged = l
			continue
		}
		errs = append(errs, l.Error)
	}
	if diff := cmp.Diff([]string{"first", "beside it", "last"}, errs); diff != "" {
		t.Error(diff)
	}
	if damaged.Pipeline != "p" || damaged.Partition != "a" || damaged.Position != 2 || !strings.Contains(damaged.Error, s.db.Path()) || !strings.Contains(damaged.Error, "purge") {
		t.Errorf("%+v", damaged)
	}
	result, err := s.Retry(Filter{})
	if (result != RetryResult{Queued: 3}) || !errors.Is(err, boltfile.ErrDamagedValue) || !event.IsPermanent(err) || !strings.Contains(event.HintOf(err), "purge") {
		t.Errorf("retry: %+v, %v", result, err)
	}
	ids, err := s.Resolve([]string{damaged.ID()})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(Filter{IDs: ids}); n != 1 || err != nil {
		t.Errorf("%d letters were purged, %v", n, err)
	}
	if left := list(t, s, Filter{}); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	retry(t, s, Filter{}, RetryResult{})
}

// TestDamagedLetterHasItsOwnID: purging it leaves the rows of the same event alone.
func TestDamagedLetterHasItsOwnID(t *testing.T) {
	s := open(t, t.TempDir())
	zero := dead(2, "the same number as the damaged one's ordinal")
	keep(t, s, "a", dead(2, "to be damaged"), zero)
	damage(t, s, letterKey(2, 0), []byte("p"), []byte("a"))
	letters := list(t, s, Filter{})
	if len(letters) != 2 || !letters[0].Damaged {
		t.Fatalf("%+v", letters)
	}
	if n, err := s.Purge(Filter{IDs: []string{letters[0].ID()}}); n != 1 || err != nil {
		t.Errorf("%d letters were purged, %v", n, err)
	}
	if diff := cmp.Diff([]string{"p a 2.0 " + zero.Error}, names(list(t, s, Filter{}))); diff != "" {
		t.Error(diff)
	}
}

// TestDamagedRetryIsPermanent: the pipeline stops at a damaged letter in its queue, when it reads it
// and when it would replace it, and the error says where it is and what to do.
func TestDamagedRetryIsPermanent(t *testing.T) {
	s := open(t, t.TempDir())
	keep(t, s, "a", dead(1, "no"), dead(2, "no"))
	retry(t, s, Filter{}, RetryResult{Queued: 2})
	name, reader := openRetryBatch(t, s)
	damage(t, s, positionKey(1), queueBucket, []byte("p"), []byte(name))
	_, read := reader.Read(new(event.Batch), nil)
	for what, err := range map[string]error{"read": read, "replace": s.Replace("p", name, event.Range{First: 1, Count: 1}, []event.DeadLetter{dead(1, "again")})} {
		if !event.IsPermanent(err) || !errors.Is(err, boltfile.ErrDamagedValue) || !strings.Contains(event.HintOf(err), s.db.Path()) {
			t.Errorf("%s: %v, hint %q", what, err, event.HintOf(err))
			continue
		}
		if want := "p, partition " + name + ", position 1 in " + s.db.Path(); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: it does not say %q", what, err, want)
		}
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
			var letters []event.DeadLetter
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
	var many []event.DeadLetter
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
	for _, d := range []event.DeadLetter{dead(9, "x"), dead(15, "x")} {
		if err := s.Replace("p", "a", r, []event.DeadLetter{d}); err == nil || !strings.Contains(err.Error(), "outside the range") {
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
