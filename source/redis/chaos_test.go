package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
)

// A chaos causes random faults of a list and its engine.
type chaos struct {
	*run
	form     keyKind
	random   *rand.Rand
	server   *testserver.RedisServer
	client   rueidis.Client
	pushed   []string // that the list must not have lost
	lost     []string // that Redis forgot: they may land once or not at all
	inFlight []event.Batch
	saved    []byte
	savedAt  int // len(pushed) then
}

// TestAnyOrderOfFaults: after any faults, each event that Redis still had or got later is
// committed once, and one that Redis lost at most once.
func TestAnyOrderOfFaults(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			for seed := range uint64(5) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { anyOrder(t, f, f.on(server), server, seed) })
			}
		})
	}
}

// TestAnyOrderOfFaultsAndEvictions adds a producer whose MAXLEN removes unread events.
func TestAnyOrderOfFaultsAndEvictions(t *testing.T) {
	t.Parallel()
	for _, f := range forms()[1:3] {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			config := f.on(server)
			config.Lost = "report"
			for seed := range uint64(4) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					anyOrder(t, f, config, server, seed, func(c *chaos) func() { return c.evict })
				})
			}
		})
	}
}

func anyOrder(t *testing.T, f keyKind, config redis.Config, server *testserver.RedisServer, seed uint64, more ...func(*chaos) func()) {
	c := &chaos{run: newRun(t, config), form: f,
		random: rand.New(rand.NewPCG(seed, 0)), server: server, client: connect(t, server)}
	do(t, c.client, "FLUSHALL")
	c.patience = 100 * time.Millisecond
	c.push()
	c.save()
	c.mustOpen()
	ops := []func(){c.push, c.push, c.readSome, c.readSome, c.readSome, c.settle, c.settle, c.settle,
		c.crash, c.restart, c.save, c.restore}
	for _, op := range more {
		ops = append(ops, op(c), op(c), op(c))
	}
	for range 60 {
		ops[c.random.IntN(len(ops))]()
	}
	c.commitAll()
	c.drain()
	c.close()
	c.verify()
}

func (c *chaos) push() {
	items := numbered(fmt.Sprint("push ", len(c.pushed)+len(c.lost)), 0, c.random.IntN(400))
	c.form.push(c.t, c.client, listQueue, items...)
	c.pushed = append(c.pushed, items...)
}

func (c *chaos) readSome() {
	for range c.random.IntN(4) {
		b, err := c.read()
		switch {
		case err == nil:
			c.inFlight = append(c.inFlight, b)
		case errors.Is(err, source.ErrMoved):
			c.restart()
		case errors.Is(err, context.DeadlineExceeded):
			c.commitAll() // the generation ends when all of it is durable
		case !errors.Is(err, io.EOF):
			c.t.Logf("read: %v", err)
		}
	}
}

// settle commits and acknowledges one of the batches in flight.
func (c *chaos) settle() {
	if len(c.inFlight) > 0 {
		i := c.random.IntN(len(c.inFlight))
		c.commit(c.inFlight[i])
		c.ack(c.inFlight[i])
		c.inFlight = slices.Delete(c.inFlight, i, i+1)
	}
}

func (c *chaos) commitAll() {
	for len(c.inFlight) > 0 {
		c.settle()
	}
}

// crash is a kill -9 of the engine: some batches are committed and not acknowledged, the
// others are not committed, and nothing more is trimmed.
func (c *chaos) crash() {
	for _, b := range c.inFlight {
		if c.random.IntN(2) == 0 {
			c.commit(b)
		}
	}
	c.inFlight = nil
	c.mustOpen()
}

// restart is a drain and a new start.
func (c *chaos) restart() {
	c.commitAll()
	c.close()
	c.mustOpen()
}

// evict removes entries from the front of a stream, as a producer's MAXLEN does.
func (c *chaos) evict() {
	entries, err := do(c.t, c.client, "XRANGE", listQueue, "-", "+", "COUNT", fmt.Sprint(1+c.random.IntN(300))).AsXRange()
	if err != nil || len(entries) == 0 {
		return
	}
	length, err := do(c.t, c.client, "XLEN", listQueue).ToInt64()
	if err != nil {
		c.t.Fatal(err)
	}
	do(c.t, c.client, "XTRIM", listQueue, "MAXLEN", "=", fmt.Sprint(length-int64(len(entries))))
	gone := map[string]bool{}
	for _, e := range entries {
		gone[e.FieldValues["data"]] = true
	}
	var kept []string
	saved := 0 // of those that stay: how many the snapshot has; it may bring others back
	for i, e := range c.pushed {
		if gone[e] {
			c.lost = append(c.lost, e)
			continue
		}
		kept = append(kept, e)
		if i < c.savedAt {
			saved++
		}
	}
	c.pushed, c.savedAt = kept, saved
}

func (c *chaos) save() {
	c.saved, c.savedAt = snapshot(c.t, c.server, c.client), len(c.pushed)
}

func (c *chaos) restore() {
	restore(c.t, c.server, c.saved)
	c.client.Close()
	c.client = connect(c.t, c.server)
	c.lost = append(c.lost, c.pushed[c.savedAt:]...)
	c.pushed = c.pushed[:c.savedAt]
}

func (c *chaos) verify() {
	c.t.Helper()
	c.once(c.pushed, landedOf(c.run, c.lost))
}

// TestRestoredWhileProducersPush kills Redis and restores a snapshot while producers push.
func TestRestoredWhileProducersPush(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			restoredWhileProducersPush(t, f)
		})
	}
}

func restoredWhileProducersPush(t *testing.T, f keyKind) {
	server, client, r, first := startKind(t, f, 3000)
	saved := snapshot(t, server, client)
	p := &producers{stop: make(chan struct{}), command: f.command}
	for i := range 2 {
		client := p.connect(t, server)
		p.Go(func() { p.push(client, fmt.Sprint("producer ", i)) })
	}
	for i := range 30 {
		if b, err := r.read(); err == nil && i%7 != 3 {
			r.commit(b)
			r.ack(b)
		}
	}
	// Everything that is taken before this instant may be forgotten.
	p.epoch(func() { restore(t, server, saved) })
	until := time.Now().Add(300 * time.Millisecond)
	for end := time.Now().Add(time.Minute); time.Now().Before(until) || !p.hasKept() && time.Now().Before(end); {
		b, err := r.read()
		if errors.Is(err, source.ErrMoved) {
			r.close()
			r.mustOpen()
		} else if err == nil {
			r.commit(b)
			r.ack(b)
		}
	}
	close(p.stop)
	p.Wait()
	r.drain()
	r.close()
	if len(p.kept) == 0 || len(p.forgotten) == 0 {
		t.Fatalf("the producers pushed %d and %d events, want some before and after the restore", len(p.forgotten), len(p.kept))
	}
	r.once(first, p.kept, landedOf(r, p.forgotten))
}

// producers push events until they are stopped, each event once.
type producers struct {
	sync.WaitGroup
	stop    chan struct{}
	command func(c rueidis.Client, key, item string) rueidis.Completed

	mu        sync.RWMutex // held for reading during a push
	list      sync.Mutex
	forgotten []string // pushed before the epoch
	kept      []string // taken by Redis since
}

// connect makes a client that does not retry.
func (p *producers) connect(t *testing.T, server *testserver.RedisServer) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Address()}, DisableCache: true, ForceSingleClient: true, DisableRetry: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (p *producers) push(client rueidis.Client, name string) {
	for i := 0; ; i += 10 {
		select {
		case <-p.stop:
			return
		case <-time.After(time.Millisecond):
			p.pushSome(client, numbered(name, i, i+10))
		}
	}
}

func (p *producers) pushSome(client rueidis.Client, items []string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var all rueidis.Commands
	for _, item := range items {
		all = append(all, p.command(client, listQueue, item))
	}
	results := client.DoMulti(context.Background(), all...)
	p.list.Lock()
	defer p.list.Unlock()
	for i, result := range results {
		if result.Error() == nil {
			p.kept = append(p.kept, items[i])
		} else {
			p.forgotten = append(p.forgotten, items[i])
		}
	}
}

func (p *producers) hasKept() bool {
	p.list.Lock()
	defer p.list.Unlock()
	return len(p.kept) > 0
}

// epoch runs something between two pushes, and forgets what was pushed before.
func (p *producers) epoch(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten, p.kept = append(p.forgotten, p.kept...), nil
	do()
}
