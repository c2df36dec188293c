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
	chunkEvents  = 100
	chunkPause   = 25 * time.Millisecond
	backlogMost  = 3000 // events that wait: then the producer waits too
	counter      = "pushed"
	producerRest = 10 * time.Millisecond // while Redis is away
)

// A push is one chunk of events that Redis took.
type push struct {
	first, count uint64
	key          string
	at           time.Time
}

// A producer pushes numbered events into lists or streams without a pause,
// whatever happens to Redis. Each number is pushed once: what became of a push
// that got no answer is told by a counter that changes with it. It is safe for
// concurrent use.
type producer struct {
	server   resp.Server
	events   *Events
	stream   bool
	keys     []string
	most     int // events that wait
	pause    time.Duration
	random   *rand.Rand
	conn     *resp.Conn
	arena    []byte
	finished sync.WaitGroup
	stop     context.CancelFunc

	mu        sync.Mutex // held during a push
	next      uint64     // number of the next event
	doubtful  *push      // that got no answer
	pushes    []push
	forgotten []push // that Redis has lost
}

func newProducer(address string, events *Events, stream bool, keys int, random *rand.Rand) *producer {
	p := &producer{server: resp.Server{Address: address}, events: events, stream: stream, random: random, next: 1, most: backlogMost, pause: chunkPause}
	for i := range keys {
		p.keys = append(p.keys, keyPrefix+strconv.Itoa(i+1))
	}
	return p
}

// start pushes in the background until end.
func (p *producer) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.finished.Go(func() {
		for ctx.Err() == nil {
			pause := p.pause
			if err := p.step(ctx); err != nil {
				pause = producerRest
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// end stops pushing, and waits until it is known what Redis has.
func (p *producer) end(ctx context.Context) error {
	p.stop()
	p.finished.Wait()
	for {
		p.mu.Lock()
		err := p.resolve(ctx)
		p.mu.Unlock()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(producerRest)
	}
}

func (p *producer) close() {
	if p.stop != nil {
		p.stop()
		p.finished.Wait()
	}
	p.disconnect()
}

// step pushes a chunk, unless enough events wait.
func (p *producer) step(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.resolve(ctx); err != nil {
		return err
	}
	waiting, err := p.count(ctx)
	if err != nil || waiting >= p.most {
		return err
	}
	chunk := push{p.next, uint64(1 + p.random.IntN(2*chunkEvents)), p.keys[p.random.IntN(len(p.keys))], time.Now()}
	p.next += chunk.count
	p.doubtful = &chunk
	if err := p.send(ctx, &chunk); err != nil {
		p.disconnect()
		return err
	}
	p.took()
	return nil
}

func (p *producer) took() {
	p.pushes = append(p.pushes, *p.doubtful)
	p.doubtful = nil
}

// resolve finds out what became of a push without an answer.
func (p *producer) resolve(ctx context.Context) error {
	if err := p.connect(ctx); err != nil || p.doubtful == nil {
		return err
	}
	last, err := p.counter(ctx)
	if err != nil {
		p.disconnect()
		return err
	}
	if last == p.doubtful.first+p.doubtful.count-1 {
		p.took()
		return nil
	}
	p.next, p.doubtful = p.doubtful.first, nil // not taken: the numbers are free
	return nil
}

// counter is the number of the last event that Redis has taken.
func (p *producer) counter(ctx context.Context) (uint64, error) {
	v, err := p.conn.Do(ctx, "GET", counter)
	if err != nil || v == nil {
		return 0, err
	}
	return strconv.ParseUint(fmt.Sprint(v), 10, 64)
}

// send pushes a chunk, and the counter with it.
func (p *producer) send(ctx context.Context, c *push) error {
	return p.conn.During(ctx, func() error {
		p.conn.Command("MULTI")
		replies := 4
		if p.stream {
			replies = 3 + int(c.count)
		} else {
			p.conn.Begin(2 + int(c.count))
			p.conn.Arg("RPUSH")
			p.conn.Arg(c.key)
		}
		for n := c.first; n < c.first+c.count; n++ {
			if p.stream {
				p.conn.Begin(5)
				for _, word := range []string{"XADD", c.key, "*", "data"} {
					p.conn.Arg(word)
				}
			}
			p.arena = p.events.Append(p.arena[:0], n)
			p.conn.ArgBytes(p.arena)
		}
		p.conn.Command("SET", counter, strconv.FormatUint(c.first+c.count-1, 10))
		p.conn.Command("EXEC")
		if err := p.conn.Flush(); err != nil {
			return err
		}
		for range replies {
			if _, err := p.conn.Value(); err != nil {
				return err
			}
		}
		return nil
	})
}

// waiting is how many events are in Redis. A connection that is kept may be from
// before Redis was killed last: then it asks again over a new one.
func (p *producer) waiting(ctx context.Context) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.conn != nil
	for {
		if err := p.connect(ctx); err != nil {
			return 0, err
		}
		if n, err = p.count(ctx); err == nil || !kept {
			return n, err
		}
		kept = false
	}
}

func (p *producer) count(ctx context.Context) (n int, err error) {
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

// setBack restores Redis while no push is under way, and notes what it has
// forgotten: what was pushed since the snapshot.
func (p *producer) setBack(ctx context.Context, restore func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect()
	if err := restore(); err != nil {
		return err
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	last, err := p.counter(ctx)
	if err != nil {
		return err
	}
	if p.doubtful != nil { // taken or not, it is gone
		p.took()
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

// about says how an event came in.
func (p *producer) about(n uint64) (one push, err error) {
	for _, all := range [][]push{p.pushes, p.forgotten} {
		i := slices.IndexFunc(all, func(c push) bool { return n >= c.first && n < c.first+c.count })
		if i >= 0 {
			return all[i], nil
		}
	}
	return push{}, errors.New("it was never pushed")
}
