package redis_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
)

// start makes a server with a list of events and a run that reads it.
func start(t *testing.T, events int, flags ...string) (*testserver.RedisServer, rueidis.Client, *run, []string) {
	t.Helper()
	return startKind(t, forms()[0], events, flags...)
}

func TestTrimsWhatIsDurable(t *testing.T) {
	_, client, r, items := start(t, 1000)
	var batches []event.Batch
	for range 4 {
		batches = append(batches, r.mustRead())
	}
	for _, i := range []int{2, 1} {
		r.commit(batches[i])
		r.ack(batches[i])
	}
	b := r.mustRead()
	if n := length(t, client, listQueue); n != 1000 {
		t.Errorf("the list has %d items while its first is not durable, want all 1000", n)
	}
	r.commit(b)
	r.commit(batches[0])
	r.ack(batches[0])
	r.close()
	if n := length(t, client, listQueue); n != 700 {
		t.Errorf("the list has %d items, want 700: three batches are durable", n)
	}
	r.mustOpen()
	r.drain()
	r.close()
	r.once(items)
	if n := length(t, client, listQueue); n != 0 {
		t.Errorf("the list still has %d items", n)
	}
}

// TestCommittedButNotTrimmed crashes between the sink's commit and the trim.
func TestCommittedButNotTrimmed(t *testing.T) {
	_, _, r, items := start(t, 1000)
	for i := range 8 {
		if b := r.mustRead(); i%3 != 0 {
			r.commit(b)
		}
	}
	r.mustOpen()
	r.drain()
	r.close()
	r.once(items)
}

// restore puts back the snapshot that a server loads when it starts.
func restore(t *testing.T, server *testserver.RedisServer, snapshot []byte) {
	t.Helper()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(server.SnapshotPath(), snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func snapshot(t *testing.T, server *testserver.RedisServer, client rueidis.Client) []byte {
	t.Helper()
	do(t, client, "SAVE")
	b, err := os.ReadFile(server.SnapshotPath())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type comeback struct {
	name   string
	before int // batches read before the snapshot
	pushed int // events pushed after the snapshot, which Redis forgets
	after  int // batches read after it
	gap    int // which of them is not committed, if any
	later  int // events pushed after the restore
}

// TestRestoredFromSnapshot restores a snapshot while producers continue: committed events,
// restored ones and later pushes are each committed once.
func TestRestoredFromSnapshot(t *testing.T) {
	for _, c := range []comeback{
		{"to before the first read", 0, 0, 5, -1, 300},
		{"before the first read, after losing pushes", 0, 500, 12, -1, 300},
		{"with the list partly drained", 3, 0, 4, -1, 300},
		{"with lost pushes that had landed", 3, 500, 11, -1, 300},
		{"with lost pushes and a batch in flight", 3, 500, 11, 2, 300},
		{"with a lost batch in flight", 3, 500, 11, 9, 300},
		{"with fewer later pushes than were lost", 3, 500, 11, -1, 20},
		{"with no later push", 3, 500, 11, 4, 0},
	} {
		for _, f := range forms() {
			t.Run(f.name+" "+c.name, func(t *testing.T) {
				t.Parallel()
				restored(t, f, c)
			})
		}
	}
}

func restored(t *testing.T, f keyKind, c comeback) {
	server := testserver.Redis(t)
	client := connect(t, server)
	first := numbered("first", 0, 1000)
	f.push(t, client, listQueue, first...)
	r := newRun(t, f.on(server))
	if c.before > 0 {
		r.mustOpen()
		for range c.before {
			b := r.mustRead()
			r.commit(b)
			r.ack(b)
		}
		r.close()
	}
	saved := snapshot(t, server, client)
	r.mustOpen()
	forgotten := numbered("forgotten", 0, c.pushed)
	f.push(t, client, listQueue, forgotten...)
	for i := range c.after {
		b := r.mustRead()
		if i != c.gap {
			r.commit(b)
			r.ack(b)
		}
	}
	restore(t, server, saved)
	later := numbered("later", 0, c.later)
	f.push(t, connect(t, server), listQueue, later...)
	r.drain()
	r.close()
	r.once(first, landedOf(r, forgotten), later)
}

// landedOf returns those of the events that were committed.
func landedOf(r *run, events []string) (landed []string) {
	for _, e := range events {
		if r.landed[e] > 0 {
			landed = append(landed, e)
		}
	}
	return landed
}

// TestRestoredTwice restores the same snapshot repeatedly, each time after more commits.
func TestRestoredTwice(t *testing.T) {
	server, client, r, first := start(t, 1000)
	b := r.mustRead()
	r.commit(b)
	r.ack(b)
	saved := snapshot(t, server, client)
	var want [][]string
	for _, name := range []string{"second", "third", "fourth"} {
		pushed := numbered(name, 0, 300)
		push(t, connect(t, server), listQueue, pushed...)
		r.drain()
		want = append(want, pushed)
		restore(t, server, saved)
		r.mustOpenAfterRestart()
	}
	r.drain()
	r.close()
	r.once(append(want, first)...)
}

// mustOpenAfterRestart opens a new source, as a restarted engine does.
func (r *run) mustOpenAfterRestart() {
	r.t.Helper()
	_ = r.reader.Close(r.t.Context())
	r.mustOpen()
}

func TestFlushedWhileRunning(t *testing.T) {
	_, client, r, _ := start(t, 1000)
	for range 3 {
		b := r.mustRead()
		r.commit(b)
		r.ack(b)
	}
	do(t, client, "FLUSHALL")
	later := numbered("later", 0, 50)
	push(t, client, listQueue, later...)
	r.drain()
	r.close()
	for _, e := range later {
		if r.landed[e] != 1 {
			t.Fatalf("%s landed %d times after a flush, want once", e, r.landed[e])
		}
	}
}

// TestAnotherClientPops pops from the front: the reader must notice, and lose nothing more.
func TestAnotherClientPops(t *testing.T) {
	_, client, r, items := start(t, 1000)
	r.mustRead()
	do(t, client, "LPOP", listQueue)
	var err error
	for err == nil {
		_, err = r.read()
	}
	if !errors.Is(err, source.ErrMoved) {
		t.Fatalf("reading goes on to %v, the reader has not noticed", err)
	}
	r.mustOpen()
	r.drain()
	r.close()
	r.once(items[1:])
}

// TestSinkSetBack restores the sink's database to a state older than the list's.
func TestSinkSetBack(t *testing.T) {
	_, _, r, _ := start(t, 1000)
	for range 5 {
		b := r.mustRead()
		r.commit(b)
		r.ack(b)
	}
	r.close()
	whole := r.committed[r.partition]
	for _, c := range []struct {
		name string
		done event.Ranges
		gap  string
	}{
		{"everything", nil, "[0,500)"},
		{"the end", event.Ranges{whole[0].Head(200)}, "[200,500)"},
		{"the middle", event.Ranges{whole[0].Head(200), whole[0].Tail(300)}, "[200,300)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t, r.config, r.limits)
			_, err := s.Open(t.Context(), r.partition, c.done)
			permanent(t, err, c.gap, "{q}:perigee")
		})
	}
}

// TestHintAfterSinkSetBack follows the hint: all events in the list are committed in a new
// generation, and none is skipped.
func TestHintAfterSinkSetBack(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			_, client, r, items := startKind(t, f, 1000)
			for range 5 {
				b := r.mustRead()
				r.commit(b)
				r.ack(b)
			}
			r.close()
			r.committed[r.partition] = event.Ranges{{First: 0, Count: 200}}
			clear(r.landed)
			follow(t, client, r.open())
			r.mustOpen()
			r.drain()
			r.close()
			r.once(items[500:])
		})
	}
}

// follow runs the command at the end of an error's hint.
func follow(t *testing.T, client rueidis.Client, err error) {
	t.Helper()
	var p *event.PermanentError
	if !errors.As(err, &p) {
		t.Fatalf("error %v, want one that stays", err)
	}
	_, command, found := strings.Cut(p.Hint, "redis-cli ")
	if !found {
		t.Fatalf("hint %q has no command", p.Hint)
	}
	do(t, client, strings.Fields(strings.ReplaceAll(command, `"`, ""))...)
}

// TestFlushedLongAfter: without fingerprints in the sink, a flushed Redis looks like one
// that was set back, so a person must decide.
func TestFlushedLongAfter(t *testing.T) {
	_, client, r, _ := start(t, 100)
	r.drain()
	r.close()
	r.committed[r.partition] = event.Ranges{{First: 0, Count: 100}}
	do(t, client, "FLUSHALL")
	r.mustOpen() // with nothing in the list there is nothing to doubt
	r.close()
	do(t, client, "FLUSHALL")
	later := numbered("later", 0, 10)
	push(t, client, listQueue, later...)
	err := r.open()
	permanent(t, err, "fingerprints", "position 0")
	follow(t, client, err)
	clear(r.landed)
	r.mustOpen()
	r.drain()
	r.close()
	r.once(later)
}

func TestNoFingerprints(t *testing.T) {
	server, client, r, _ := start(t, 1000)
	saved := snapshot(t, server, client)
	b := r.mustRead()
	r.commit(b)
	r.ack(b)
	r.close()
	restore(t, server, saved)
	s := newSource(t, r.config, r.limits)
	_, err := s.Open(t.Context(), r.partition, event.Ranges{{First: 0, Count: 100}})
	permanent(t, err, "fingerprints", "position 0")

	// A fingerprint further on proves what comes before it.
	proved := event.Ranges{{First: 0, Count: 50}, b.Range.Tail(50)}
	reader, err := s.Open(t.Context(), r.partition, proved)
	if err != nil {
		t.Fatal(err)
	}
	var next event.Batch
	if err := reader.Read(t.Context(), &next); err != nil || next.Range.First != 100 {
		t.Errorf("read %v, %v; want what follows position 99", next.Range, err)
	}
	if err := reader.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFingerprintsOfSome: the sink has events behind new ones, and no longer the fingerprints of some.
// The new ones are read, and what the sink has is skipped.
func TestFingerprintsOfSome(t *testing.T) {
	_, _, r, _ := start(t, 1000)
	r.mustRead()
	r.mustRead()
	third := r.mustRead()
	r.close()
	s := newSource(t, r.config, r.limits)
	reader, err := s.Open(t.Context(), r.partition, event.Ranges{{First: 100, Count: 100}, third.Range})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{0, 300} {
		var b event.Batch
		if err := reader.Read(t.Context(), &b); err != nil || b.Range.First != want {
			t.Errorf("read %v, %v; want what begins at position %d", b.Range, err, want)
		}
	}
	if err := reader.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSinkWithoutPositions: a sink that remembers no positions, such as standard output,
// cannot prove what was acknowledged.
func TestSinkWithoutPositions(t *testing.T) {
	_, _, r, _ := start(t, 10)
	r.drain()
	r.close()
	s, err := redis.New(source.Env{Pipeline: "mails", Limits: r.limits}, r.config)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := s.Open(t.Context(), r.partition, nil)
	if err != nil {
		t.Fatalf("a sink that remembers nothing is held to have lost something: %v", err)
	}
	var b event.Batch
	if err := reader.Read(t.Context(), &b); !errors.Is(err, io.EOF) {
		t.Errorf("read %v, %v; want the end", b.Range, err)
	}
	if err := reader.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
