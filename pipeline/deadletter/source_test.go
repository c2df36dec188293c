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

// A shelf is a source with one partition in memory, or with none when it has no
// name. It gives up nothing.
type shelf struct {
	name string
	docs []string
}

func (s shelf) Partitions(context.Context) ([]string, error) {
	if s.name == "" {
		return nil, nil
	}
	return []string{s.name}, nil
}

func (s shelf) Open(_ context.Context, partition string, done event.Ranges) (source.Reader, error) {
	if s.name != partition {
		return nil, source.ErrMoved
	}
	return &shelfReader{shelf: s, done: done}, nil
}

func (s shelf) Traits() source.Traits { return source.Traits{} }
func (s shelf) Close() error          { return nil }

type shelfReader struct {
	shelf
	done event.Ranges
	next uint64
}

func (r *shelfReader) Read(_ context.Context, b *event.Batch) error {
	b.Reset()
	r.next = r.done.Next(r.next)
	b.Partition, b.Range.First = r.name, r.next
	for b.Len() < limits.Events && r.next < uint64(len(r.docs)) && !r.done.Has(r.next) {
		b.Append([]byte(r.docs[r.next]))
		r.next++
	}
	if b.Range.Count = uint64(b.Len()); b.Len() == 0 {
		return io.EOF
	}
	return nil
}

func (r *shelfReader) Ack(context.Context, event.Range) error { return nil }
func (r *shelfReader) Close(context.Context) error            { return nil }
func (r *shelfReader) Lag() uint64                            { return uint64(len(r.docs)) - r.next }

var limits = source.Limits{Events: 5, Bytes: 1 << 20}

// keep keeps letters of positions that are durable everywhere.
func keep(t *testing.T, s *Store, partition string, letters ...event.Dead) {
	t.Helper()
	r := event.Range{Count: 1 << 20}
	replace(t, s, "p", partition, r, letters...)
	if err := s.settle("p", partition, r); err != nil {
		t.Fatal(err)
	}
}

func retry(t *testing.T, s *Store, f Filter, want RetryResult) {
	t.Helper()
	if got, err := s.Retry(f); err != nil || got != want {
		t.Fatalf("retry: %+v, %v, want %+v", got, err, want)
	}
}

func TestQueueIsASource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
		s := open(t, t.TempDir())
		s.db.NoSync = true
		var place sourcetest.Place
		var letters []event.Dead
		for i := range events {
			d := dead(uint64(i), "x")
			d.Original = fmt.Appendf(nil, `{"id":%06d}`, i)
			letters = append(letters, d)
			place.Events = append(place.Events, string(d.Original))
		}
		keep(t, s, "a", letters...)
		retry(t, s, Filter{}, RetryResult{Queued: events})
		place.Open = func(t *testing.T, limits source.Limits) source.Source {
			var own shelf
			if n, err := s.Queued(); err != nil || n["p"] == 0 {
				own.name = "empty" // a queue without letters has no partition
			}
			return s.Join(Feed{Pipeline: "p", Source: own, Limits: limits})
		}
		return place
	})
}

// queued opens the batch that is offered and returns its name and reader.
func queued(t *testing.T, src source.Source, done event.Ranges) (string, source.Reader) {
	t.Helper()
	names, err := src.Partitions(t.Context())
	if err != nil || len(names) == 0 {
		t.Fatalf("partitions: %q, %v", names, err)
	}
	name := names[len(names)-1]
	r, err := src.Open(t.Context(), name, done)
	if err != nil {
		t.Fatal(err)
	}
	return name, r
}

func TestLetterKeepsItsIdentity(t *testing.T) {
	s := open(t, t.TempDir())
	first := event.Dead{Position: 7, Sink: "pg", Number: 2, Stage: "sink", Error: "no", Original: []byte(`{"a":1}`)}
	keep(t, s, "list", first)
	before := list(t, s, Filter{})[0]
	src := s.Join(Feed{Pipeline: "p", Source: shelf{name: "list"}, Limits: limits, Sinks: []string{"pg"}})
	for tries := 1; tries <= 2; tries++ {
		retry(t, s, Filter{IDs: []string{before.ID()}}, RetryResult{Queued: 1})
		if n, err := s.Queued(); err != nil || n["p"] != 1 {
			t.Errorf("queued %v, %v", n, err)
		}
		name, r := queued(t, src, nil)
		var b event.Batch
		if err := r.Read(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]event.Part{{Sink: "pg", Number: 2}}, b.Only); diff != "" || string(b.Doc(0)) != `{"a":1}` {
			t.Errorf("%s\n%s", b.Doc(0), diff)
		}
		again := event.Dead{Position: b.Range.First, Stage: "script", Error: "worse", Original: b.Doc(0)}
		replace(t, s, "p", name, b.Range, again)
		if err := r.Ack(t.Context(), b.Range); err != nil {
			t.Fatal(err)
		}
		after := list(t, s, Filter{})
		if len(after) != 1 {
			t.Fatalf("letters %v", names(after))
		}
		l := after[0]
		if l.ID() != before.ID() || l.Partition != "list" || l.Position != 7 || l.Sink != "pg" || l.Number != 2 ||
			!l.First.Equal(before.First) || !l.Time.After(before.Time) || l.Retried != tries || l.Stage != "script" || l.Uncommitted {
			t.Errorf("try %d: %+v, before %+v", tries, l, before)
		}
		if _, err := src.Open(t.Context(), name, nil); !errors.Is(err, source.ErrMoved) {
			t.Errorf("a batch that is done with opens: %v", err)
		}
	}
}

// TestOldFile opens a file as it was before letters named their sink and there
// was a queue.
func TestOldFile(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	err := s.db.Update(func(tx *bolt.Tx) error {
		b, err := makeBucket(tx, []byte("p"), []byte("list"))
		if err != nil {
			return err
		}
		text := `{"number":3,"time":"2026-01-02T03:04:05Z","stage":"column","error":"too long","original":"{}"}`
		return b.Put(key(9, 0), []byte(text))
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
	_, r := queued(t, s.Join(Feed{Pipeline: "p", Source: shelf{}, Limits: limits, Sinks: []string{"mysql"}}), nil)
	var b event.Batch
	if err := r.Read(t.Context(), &b); err != nil || b.Only[0] != (event.Part{Sink: "mysql", Number: 3}) {
		t.Errorf("%v, %v", b.Only, err)
	}
}

// TestUnsettledWaits takes no letter whose range may be read again.
func TestUnsettledWaits(t *testing.T) {
	s := open(t, t.TempDir())
	replace(t, s, "p", "list", event.Range{Count: 5}, dead(1, "x"))
	replace(t, s, "p", "list", event.Range{First: 5, Count: 5}, dead(6, "x"))
	retry(t, s, Filter{}, RetryResult{Uncommitted: 2})

	src := s.Join(Feed{Pipeline: "p", Source: shelf{name: "list"}, Limits: limits})
	r, err := src.Open(t.Context(), "list", event.Ranges{{First: 0, Count: 5}}) // a sink has it
	if err != nil {
		t.Fatal(err)
	}
	retry(t, s, Filter{}, RetryResult{Queued: 1, Uncommitted: 1})
	if err := r.Ack(t.Context(), event.Range{First: 5, Count: 5}); err != nil {
		t.Fatal(err)
	}
	retry(t, s, Filter{}, RetryResult{Queued: 1})
}

// TestOneBatchAtATime offers the letters that came meanwhile after the batch.
func TestOneBatchAtATime(t *testing.T) {
	s := open(t, t.TempDir())
	src := s.Join(Feed{Pipeline: "p", Source: shelf{name: "own"}, Limits: limits})
	keep(t, s, "a", dead(1, "x"))
	retry(t, s, Filter{}, RetryResult{Queued: 1})
	first, r := queued(t, src, nil)
	for i := range uint64(3) {
		keep(t, s, "b", dead(i, "x"))
		retry(t, s, Filter{}, RetryResult{Queued: 1})
	}
	if again, _ := queued(t, src, nil); again != first {
		t.Errorf("%s is offered beside %s", again, first)
	}
	if err := r.Ack(t.Context(), event.Range{Count: 1}); err != nil {
		t.Fatal(err)
	}
	second, r := queued(t, src, nil)
	var b event.Batch
	if err := r.Read(t.Context(), &b); err != nil || b.Len() != 3 || second == first {
		t.Errorf("%s after %s has %d letters, %v", second, first, b.Len(), err)
	}
	local := src.Traits().Local
	if !local(second) || local("own") {
		t.Error("not the batch is local, but the source's own partition")
	}
}

// TestSinkSetBack says that a sink has lost what had landed.
func TestSinkSetBack(t *testing.T) {
	for _, remembered := range []bool{false, true} {
		s := open(t, t.TempDir())
		keep(t, s, "a", dead(1, "x"), dead(2, "x"), dead(3, "x"))
		retry(t, s, Filter{}, RetryResult{Queued: 3})
		src := s.Join(Feed{Pipeline: "p", Source: shelf{}, Limits: limits, Remembered: remembered})
		name, r := queued(t, src, nil)
		if err := r.Ack(t.Context(), event.Range{First: 1, Count: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := src.Open(t.Context(), name, event.Ranges{{First: 0, Count: 2}}); err != nil {
			t.Errorf("remembered %v: %v", remembered, err)
		}
		var gap *event.PermanentError
		if _, err := src.Open(t.Context(), name, nil); errors.As(err, &gap) != remembered {
			t.Errorf("remembered %v: %v", remembered, err)
		}
	}
}

func TestResolveAndPurge(t *testing.T) {
	s := open(t, t.TempDir())
	var letters []event.Dead
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
