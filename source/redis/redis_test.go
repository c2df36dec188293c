package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
	"github.com/perigeedb/perigee/source/sourcetest"
)

const listQueue = "q"

func numbered(name string, from, to int) (items []string) {
	for i := from; i < to; i++ {
		items = append(items, fmt.Sprintf(`{"id":%06d,"name":%q}`, i, name))
	}
	return items
}

func newSource(t *testing.T, c redis.Config, limits source.Limits) source.Source {
	t.Helper()
	s, err := redis.New(source.Env{Pipeline: "mails", Remembered: true, Limits: limits, Log: slog.New(slog.DiscardHandler)}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t testing.TB, server *testserver.RedisServer) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Address()}, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func push(t *testing.T, c rueidis.Client, key string, items ...string) {
	t.Helper()
	for len(items) > 0 {
		n := min(len(items), 1000)
		do(t, c, append([]string{"RPUSH", key}, items[:n]...)...)
		items = items[n:]
	}
}

func do(t *testing.T, c rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	r := c.Do(context.Background(), c.B().Arbitrary(args...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%s: %v", args[0], err)
	}
	return r
}

func length(t *testing.T, c rueidis.Client, key string) int64 {
	t.Helper()
	n, err := do(t, c, "LLEN", key).ToInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A run is a small pipeline with a sink that remembers the ranges of each partition, as
// transactional ones do.
type run struct {
	t         *testing.T
	config    redis.Config
	limits    source.Limits
	patience  time.Duration           // of a read
	committed map[string]event.Ranges // by partition: what the sink remembers
	landed    map[string]int          // by event: how often
	source    source.Source
	partition string
	reader    source.Reader
}

func newRun(t *testing.T, c redis.Config) *run {
	return &run{t: t, config: c, limits: source.Limits{Events: 100, Bytes: 1 << 20}, patience: 20 * time.Second,
		committed: map[string]event.Ranges{}, landed: map[string]int{}}
}

// open opens the list, again as long as the list has moved.
func (r *run) open() error {
	r.t.Helper()
	r.source = newSource(r.t, r.config, r.limits)
	for moves := 0; ; moves++ {
		names, err := r.source.Partitions(r.t.Context())
		if err != nil {
			return err
		}
		r.partition = names[0]
		r.reader, err = r.source.Open(r.t.Context(), r.partition, r.done())
		if !errors.Is(err, source.ErrMoved) || moves == 100 {
			return err
		}
	}
}

// done returns a copy of the sink's ranges, as a database would.
func (r *run) done() (done event.Ranges) {
	for _, c := range r.committed[r.partition] {
		c.Fingerprints = append([]uint32(nil), c.Fingerprints...)
		done = append(done, c)
	}
	return done
}

func (r *run) mustOpen() {
	r.t.Helper()
	if err := r.open(); err != nil {
		r.t.Fatalf("open: %v", err)
	}
}

// read reads a batch without committing it.
func (r *run) read() (b event.Batch, err error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	err = r.reader.Read(ctx, &b)
	return b, err
}

func (r *run) mustRead() event.Batch {
	r.t.Helper()
	b, err := r.read()
	if err != nil {
		r.t.Fatalf("read: %v", err)
	}
	return b
}

// commit is the sink's transaction.
func (r *run) commit(b event.Batch) {
	for i := range b.Len() {
		r.landed[string(b.Doc(i))]++
	}
	have := r.committed[b.Partition]
	have.Add(b.Range)
	r.committed[b.Partition] = have
}

func (r *run) ack(b event.Batch) {
	r.t.Helper()
	if err := r.reader.Ack(r.t.Context(), b.Range); err != nil {
		r.t.Errorf("acknowledge: %v", err)
	}
}

// drain reads, commits and acknowledges until the list is empty. It reopens a moved
// partition and retries after transient errors.
func (r *run) drain() {
	r.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for time.Now().Before(deadline) {
		b, err := r.read()
		switch {
		case err == nil:
			r.commit(b)
			r.ack(b)
		case errors.Is(err, io.EOF):
			return
		case errors.Is(err, source.ErrMoved):
			r.close()
			r.mustOpen()
		default:
			r.t.Logf("drain goes on after: %v", err)
			time.Sleep(10 * time.Millisecond)
		}
	}
	r.t.Fatal("the list does not become empty")
}

func (r *run) close() {
	r.t.Helper()
	if err := r.reader.Close(r.t.Context()); err != nil {
		r.t.Errorf("close: %v", err)
	}
}

// once fails the test unless each of the events, and no other, was committed once.
func (r *run) once(groups ...[]string) {
	r.t.Helper()
	lost, doubled, strange := 0, 0, len(r.landed)
	for _, group := range groups {
		for _, e := range group {
			switch n := r.landed[e]; {
			case n == 0:
				lost++
			case n > 1:
				doubled++
			}
			if r.landed[e] > 0 {
				strange--
			}
		}
	}
	if lost+doubled+strange > 0 {
		r.t.Errorf("%d events lost, %d landed more than once, %d landed that were never pushed", lost, doubled, strange)
	}
}

func permanent(t *testing.T, err error, words ...string) {
	t.Helper()
	var p *event.PermanentError
	if !errors.As(err, &p) {
		t.Fatalf("error %v, want one that stays", err)
	}
	for _, w := range words {
		if !strings.Contains(p.Error()+"\n"+p.Hint, w) {
			t.Errorf("error %q with hint %q does not say %q", p, p.Hint, w)
		}
	}
}

func TestKind(t *testing.T) { sourcetest.Kind(t, redis.Kind()) }
