package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/sourcetest"
)

// A retrySource makes a source of the retries of pipeline p, so that the suite of
// sources holds RetryReader to its promises.
type retrySource struct {
	store   *Store
	options RetryOptions
}

func (r retrySource) Partitions(context.Context) ([]string, error) {
	name, err := r.store.RetryBatch("p")
	if name == "" {
		name = "empty" // a queue without letters has no partition
	}
	return []string{name}, err
}

func (r retrySource) Open(_ context.Context, partition string, done event.Ranges) (source.Reader, error) {
	for _, d := range done {
		if err := r.store.MarkCommitted("p", partition, d); err != nil {
			return nil, err
		}
	}
	reader, err := r.store.OpenRetries(r.options, partition, done)
	if err == nil && reader.end == 0 && len(done) == 0 && partition != "empty" {
		return nil, source.ErrMoved
	}
	return &retrySourceReader{reader: reader, partition: partition}, err
}

func (retrySource) Traits() source.Traits { return source.Traits{} }
func (retrySource) Close() error          { return nil }

type retrySourceReader struct {
	reader    *RetryReader
	partition string
	requests  []Request
}

func (r *retrySourceReader) Read(ctx context.Context, b *event.Batch) (err error) {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.requests, err = r.reader.Read(b, r.requests)
	return err
}

func (r *retrySourceReader) Ack(_ context.Context, a event.Range) error {
	return r.reader.store.MarkCommitted("p", r.partition, a)
}

func (r *retrySourceReader) Lag() uint64                 { return r.reader.Lag() }
func (r *retrySourceReader) Close(context.Context) error { return nil }

var limits = source.Limits{Events: 5, Bytes: 1 << 20}

// keep stores letters of positions that are durable in every sink.
func keep(t *testing.T, s *Store, partition string, letters ...event.DeadLetter) {
	t.Helper()
	r := event.Range{Count: 1 << 20}
	replace(t, s, "p", partition, r, letters...)
	if err := s.MarkCommitted("p", partition, r); err != nil {
		t.Fatal(err)
	}
}

func retry(t *testing.T, s *Store, f Filter, want RetryResult) {
	t.Helper()
	if got, err := s.Retry(f); err != nil || got != want {
		t.Fatalf("retry: %+v, %v, want %+v", got, err, want)
	}
}

func TestRetriesReadAsASource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
		s := open(t, t.TempDir())
		s.db.NoSync = true
		var place sourcetest.Place
		var letters []event.DeadLetter
		for i := range events {
			d := dead(uint64(i), "x")
			d.Original = fmt.Appendf(nil, `{"id":%06d}`, i)
			letters = append(letters, d)
			place.Events = append(place.Events, string(d.Original))
		}
		keep(t, s, "a", letters...)
		retry(t, s, Filter{}, RetryResult{Queued: events})
		place.Open = func(t *testing.T, limits source.Limits) source.Source {
			return retrySource{s, RetryOptions{Pipeline: "p", Limits: limits}}
		}
		return place
	})
}

// openRetryBatch opens the batch to run and returns its name and reader.
func openRetryBatch(t *testing.T, s *Store, sinks ...string) (string, *RetryReader) {
	t.Helper()
	name, err := s.RetryBatch("p")
	if err != nil || !IsRetryBatch(name) {
		t.Fatalf("batch %q, %v", name, err)
	}
	r, err := s.OpenRetries(RetryOptions{Pipeline: "p", Limits: limits, Sinks: sinks}, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return name, r
}

func markCommitted(t *testing.T, s *Store, partition string, r event.Range) {
	t.Helper()
	if err := s.MarkCommitted("p", partition, r); err != nil {
		t.Fatal(err)
	}
}

func TestLetterKeepsItsIdentity(t *testing.T) {
	s := open(t, t.TempDir())
	first := event.DeadLetter{Position: 7, Sink: "pg", Number: 2, Stage: "sink", Error: "no", Original: []byte(`{"a":1}`)}
	keep(t, s, "list", first)
	before := list(t, s, Filter{})[0]
	for tries := 1; tries <= 2; tries++ {
		retry(t, s, Filter{IDs: []string{before.ID()}}, RetryResult{Queued: 1})
		if n, err := s.Queued(); err != nil || n["p"] != 1 {
			t.Errorf("queued %v, %v", n, err)
		}
		name, r := openRetryBatch(t, s, "pg")
		var b event.Batch
		requests, err := r.Read(&b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Request{{Sink: "pg", Number: 2}}, requests); diff != "" || string(b.Doc(0)) != `{"a":1}` {
			t.Errorf("%s\n%s", b.Doc(0), diff)
		}
		again := event.DeadLetter{Position: b.Range.First, Stage: "script", Error: "worse", Original: b.Doc(0)}
		replace(t, s, "p", name, b.Range, again)
		markCommitted(t, s, name, b.Range)
		after := list(t, s, Filter{})
		if len(after) != 1 {
			t.Fatalf("letters %v", names(after))
		}
		l := after[0]
		if l.ID() != before.ID() || l.Partition != "list" || l.Position != 7 || l.Sink != "pg" || l.Number != 2 ||
			!l.First.Equal(before.First) || !l.Time.After(before.Time) || l.Retried != tries || l.Stage != "script" || l.Uncommitted {
			t.Errorf("try %d: %+v, before %+v", tries, l, before)
		}
		if next, err := s.RetryBatch("p"); next != "" || err != nil {
			t.Errorf("batch %q is left, %v", next, err)
		}
		gone, err := s.OpenRetries(RetryOptions{Pipeline: "p", Limits: limits}, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gone.Read(&b, nil); err != io.EOF {
			t.Errorf("a completed batch reads %v", err)
		}
	}
}

// TestOldFile opens a file from before letters named their sink and could be retried.
func TestOldFile(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	err := s.db.Update(func(tx *bolt.Tx) error {
		b, err := makeBucket(tx, []byte("p"), []byte("list"))
		if err != nil {
			return err
		}
		text := `{"number":3,"time":"2026-01-02T03:04:05Z","stage":"column","error":"too long","original":"{}"}`
		return b.Put(letterKey(9, 0), []byte(text))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, folder)
	l := list(t, s, Filter{})[0]
	if l.Position != 9 || l.Number != 3 || l.Uncommitted || !l.First.Equal(l.Time) || l.Time.Year() != 2026 {
		t.Errorf("%+v", l)
	}
	retry(t, s, Filter{}, RetryResult{Queued: 1})
	_, r := openRetryBatch(t, s, "mysql")
	var b event.Batch
	if requests, err := r.Read(&b, nil); err != nil || requests[0] != (Request{Sink: "mysql", Number: 3}) {
		t.Errorf("%v, %v", requests, err)
	}
}

// TestUncommittedWaits queues no letter whose range may be read again.
func TestUncommittedWaits(t *testing.T) {
	s := open(t, t.TempDir())
	replace(t, s, "p", "list", event.Range{Count: 5}, dead(1, "x"))
	replace(t, s, "p", "list", event.Range{First: 5, Count: 5}, dead(6, "x"))
	retry(t, s, Filter{}, RetryResult{Uncommitted: 2})

	markCommitted(t, s, "list", event.Range{Count: 5})
	retry(t, s, Filter{}, RetryResult{Queued: 1, Uncommitted: 1})
	markCommitted(t, s, "list", event.Range{First: 5, Count: 5})
	retry(t, s, Filter{}, RetryResult{Queued: 1})
}

// TestOneBatchAtATime requests retries while a batch runs: they form the next batch.
func TestOneBatchAtATime(t *testing.T) {
	s := open(t, t.TempDir())
	keep(t, s, "a", dead(1, "x"))
	retry(t, s, Filter{}, RetryResult{Queued: 1})
	first, _ := openRetryBatch(t, s)
	for i := range uint64(3) {
		keep(t, s, "b", dead(i, "x"))
		retry(t, s, Filter{}, RetryResult{Queued: 1})
	}
	if again, _ := openRetryBatch(t, s); again != first {
		t.Errorf("%s runs beside %s", again, first)
	}
	markCommitted(t, s, first, event.Range{Count: 1})
	second, r := openRetryBatch(t, s)
	var b event.Batch
	if _, err := r.Read(&b, nil); err != nil || b.Len() != 3 || second == first {
		t.Errorf("%s after %s has %d letters, %v", second, first, b.Len(), err)
	}
}

func TestIsRetryBatch(t *testing.T) {
	for name, want := range map[string]bool{
		string(newBatchName()): true, "retry@0123456789abcdef": true,
		"retry@": false, "retry@0123456789abcde": false, "retry@0123456789abcdeg": false, "list#1": false, "": false,
	} {
		if IsRetryBatch(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestSinkSetBack reports a sink that lost rows of completed retries.
func TestSinkSetBack(t *testing.T) {
	for _, remembered := range []bool{false, true} {
		s := open(t, t.TempDir())
		keep(t, s, "a", dead(1, "x"), dead(2, "x"), dead(3, "x"))
		retry(t, s, Filter{}, RetryResult{Queued: 3})
		name, _ := openRetryBatch(t, s)
		markCommitted(t, s, name, event.Range{First: 1, Count: 1})
		options := RetryOptions{Pipeline: "p", Limits: limits, Remembered: remembered}
		if _, err := s.OpenRetries(options, name, event.Ranges{{First: 0, Count: 2}}); err != nil {
			t.Errorf("remembered %v: %v", remembered, err)
		}
		var gap *event.PermanentError
		if _, err := s.OpenRetries(options, name, nil); errors.As(err, &gap) != remembered {
			t.Errorf("remembered %v: %v", remembered, err)
		}
	}
}

func TestResolveAndPurge(t *testing.T) {
	s := open(t, t.TempDir())
	var letters []event.DeadLetter
	for i := range uint64(600) {
		letters = append(letters, dead(i, "x"))
	}
	keep(t, s, "a", letters...)
	retry(t, s, Filter{IDs: []string{list(t, s, Filter{})[5].ID()}}, RetryResult{Queued: 1})
	keep(t, s, "b", dead(5, "x"))
	if sizes, err := s.Sizes(); err != nil || !maps.Equal(sizes, map[string]int{"p": 600}) {
		t.Errorf("sizes %v, %v", sizes, err)
	}
	all := list(t, s, Filter{})
	ids := map[string]bool{}
	for _, l := range all {
		ids[l.ID()] = true
	}
	if len(ids) != 600 {
		t.Fatalf("%d IDs for 600 letters", len(ids))
	}
	id := all[333].ID()
	if got, err := s.Resolve([]string{id[:7], id}); err != nil || got[0] != id || got[1] != id {
		t.Errorf("%q, %v, want %s", got, err, id)
	}
	for _, prefix := range []string{"", id[:1], "nothing"} {
		if got, err := s.Resolve([]string{prefix}); err == nil {
			t.Errorf("%q is %q", prefix, got)
		}
	}
	for _, step := range []struct {
		filter       Filter
		purged, left int
	}{{Filter{IDs: []string{id}}, 1, 599}, {Filter{Pipeline: "q"}, 0, 599}, {Filter{}, 599, 0}} {
		if n, err := s.Purge(step.filter); n != step.purged || err != nil {
			t.Errorf("%+v: purged %d, %v", step.filter, n, err)
		}
		if left := list(t, s, Filter{}); len(left) != step.left {
			t.Errorf("%+v: %d are left", step.filter, len(left))
		}
	}
}
