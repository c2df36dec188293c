package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/perigeedb/perigee/internal/resp"
)

const (
	chunkEvents     = 100
	defaultInterval = 25 * time.Millisecond
	defaultBacklog  = 3000 // waiting events at which the producer stops pushing
	counterKey      = "pushed"
	redisRetryWait  = 10 * time.Millisecond // while Redis is down
)

// A push is one chunk of events that Redis accepted.
type push struct {
	first, count uint64
	key          string
	at           time.Time
}

// A producer pushes numbered events into lists or streams, whatever happens to Redis.
// It pushes each number once: a counter in the same transaction tells whether Redis
// executed a push that got no reply. It is safe for concurrent use.
type producer struct {
	server     resp.Server
	events     *Events
	stream     bool
	keys       []string
	maxBacklog int // waiting events at which it stops pushing
	interval   time.Duration
	random     *rand.Rand
	conn       *resp.Conn
	arena      []byte
	finished   sync.WaitGroup
	cancel     context.CancelFunc

	mu        sync.Mutex // held during a push
	next      uint64     // number of the next event
	pending   *push      // sent without a reply yet
	pushes    []push
	forgotten []push // lost when Redis was restored
}

func newProducer(address string, events *Events, stream bool, keys int, random *rand.Rand) *producer {
	p := &producer{server: resp.Server{Address: address}, events: events, stream: stream, random: random, next: 1, maxBacklog: defaultBacklog, interval: defaultInterval}
	for i := range keys {
		p.keys = append(p.keys, keyPrefix+strconv.Itoa(i+1))
	}
	return p
}

// start pushes in the background until stopPushing or close.
func (p *producer) start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.finished.Go(func() {
		for ctx.Err() == nil {
			pause := p.interval
			if err := p.pushChunk(ctx); err != nil {
				pause = redisRetryWait
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// stopPushing stops and waits until the outcome of the last push is known.
func (p *producer) stopPushing(ctx context.Context) error {
	p.cancel()
	p.finished.Wait()
	for {
		p.mu.Lock()
		err := p.resolvePending(ctx)
		p.mu.Unlock()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(redisRetryWait)
	}
}

func (p *producer) close() {
	if p.cancel != nil {
		p.cancel()
		p.finished.Wait()
	}
	p.disconnect()
}

// pushChunk pushes a chunk unless the backlog is full.
func (p *producer) pushChunk(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.resolvePending(ctx); err != nil {
		return err
	}
	waiting, err := p.countBacklog(ctx)
	if err != nil || waiting >= p.maxBacklog {
		return err
	}
	chunk := push{p.next, uint64(1 + p.random.IntN(2*chunkEvents)), p.keys[p.random.IntN(len(p.keys))], time.Now()}
	p.next += chunk.count
	p.pending = &chunk
	if err := p.sendChunk(ctx, &chunk); err != nil {
		p.disconnect()
		return err
	}
	p.acceptPending()
	return nil
}

func (p *producer) acceptPending() {
	p.pushes = append(p.pushes, *p.pending)
	p.pending = nil
}

// resolvePending finds out whether Redis executed a push that got no reply.
func (p *producer) resolvePending(ctx context.Context) error {
	if err := p.connect(ctx); err != nil || p.pending == nil {
		return err
	}
	last, err := p.readCounter(ctx)
	if err != nil {
		p.disconnect()
		return err
	}
	if last == p.pending.first+p.pending.count-1 {
		p.acceptPending()
		return nil
	}
	p.next, p.pending = p.pending.first, nil // not executed: push the numbers again
	return nil
}

// readCounter returns the number of the last event that Redis accepted.
func (p *producer) readCounter(ctx context.Context) (uint64, error) {
	v, err := p.conn.Do(ctx, "GET", counterKey)
	if err != nil || v == nil {
		return 0, err
	}
	return strconv.ParseUint(fmt.Sprint(v), 10, 64)
}

// sendChunk pushes a chunk and sets the counter in one transaction.
func (p *producer) sendChunk(ctx context.Context, c *push) error {
	return p.conn.WithContext(ctx, func() error {
		p.conn.Queue("MULTI")
		replies := 4
		if p.stream {
			replies = 3 + int(c.count)
		} else {
			p.conn.QueueHeader(2 + int(c.count))
			p.conn.QueueArg("RPUSH")
			p.conn.QueueArg(c.key)
		}
		for n := c.first; n < c.first+c.count; n++ {
			if p.stream {
				p.conn.QueueHeader(5)
				for _, word := range []string{"XADD", c.key, "*", "data"} {
					p.conn.QueueArg(word)
				}
			}
			p.arena = p.events.Append(p.arena[:0], n)
			p.conn.QueueBytes(p.arena)
		}
		p.conn.Queue("SET", counterKey, strconv.FormatUint(c.first+c.count-1, 10))
		p.conn.Queue("EXEC")
		if err := p.conn.Flush(); err != nil {
			return err
		}
		for range replies {
			if _, err := p.conn.ReadReply(); err != nil {
				return err
			}
		}
		return nil
	})
}

// backlog returns how many events wait in Redis. The open connection may date from before
// Redis was killed: then it asks again over a new one.
func (p *producer) backlog(ctx context.Context) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.conn != nil
	for {
		if err := p.connect(ctx); err != nil {
			return 0, err
		}
		if n, err = p.countBacklog(ctx); err == nil || !kept {
			return n, err
		}
		kept = false
	}
}

// delivered returns how many events were pushed and are no longer in Redis.
func (p *producer) delivered(ctx context.Context) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.resolvePending(ctx); err != nil {
		return 0, err
	}
	waiting, err := p.countBacklog(ctx)
	return int(p.next-1) - waiting, err
}

func (p *producer) countBacklog(ctx context.Context) (n int, err error) {
	length := "LLEN"
	if p.stream {
		length = "XLEN"
	}
	for _, key := range p.keys {
		v, err := p.conn.Do(ctx, length, key)
		if err != nil {
			p.disconnect()
			return 0, err
		}
		one, _ := strconv.Atoi(fmt.Sprint(v))
		n += one
	}
	return n, nil
}

func (p *producer) connect(ctx context.Context) (err error) {
	if p.conn == nil {
		p.conn, err = p.server.Dial(ctx)
	}
	return err
}

func (p *producer) disconnect() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// restoreRedis calls restore while no push is running, and moves the pushes since the
// snapshot to forgotten.
func (p *producer) restoreRedis(ctx context.Context, restore func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect()
	if err := restore(); err != nil {
		return err
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	last, err := p.readCounter(ctx)
	if err != nil {
		return err
	}
	if p.pending != nil { // executed or not, Redis has lost it
		p.acceptPending()
	}
	kept := p.pushes[:0:0]
	for _, one := range p.pushes {
		if one.first <= last {
			kept = append(kept, one)
		} else {
			p.forgotten = append(p.forgotten, one)
		}
	}
	p.pushes = kept
	return nil
}

// findPush returns the push of an event.
func (p *producer) findPush(n uint64) (one push, err error) {
	for _, all := range [][]push{p.pushes, p.forgotten} {
		i := slices.IndexFunc(all, func(c push) bool { return n >= c.first && n < c.first+c.count })
		if i >= 0 {
			return all[i], nil
		}
	}
	return push{}, errors.New("it was never pushed")
}
