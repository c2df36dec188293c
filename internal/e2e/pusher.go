package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source/generate"
)

// A Pusher appends generated events to a Redis list, each exactly once whatever happens to
// Redis: a key beside the list holds the number of the next event and changes in the same
// transaction. It is not safe for concurrent use.
type Pusher struct {
	server resp.Server
	conn   *resp.Conn // nil after an error
	list   string
	seed   uint64
}

// NewPusher connects to Redis and returns a pusher into a list.
func NewPusher(address, list string, seed uint64) (*Pusher, error) {
	p := &Pusher{server: resp.Server{Address: address}, list: list, seed: seed}
	return p, p.connect(context.Background())
}

func (p *Pusher) connect(ctx context.Context) (err error) {
	if p.conn == nil {
		if p.conn, err = p.server.Dial(ctx); err != nil {
			return fmt.Errorf("connect to Redis: %w", err)
		}
	}
	return nil
}

// Close closes the connection.
func (p *Pusher) Close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// PushUpTo pushes events until count of them have been pushed in total.
func (p *Pusher) PushUpTo(ctx context.Context, count uint64) error {
	for {
		next, err := p.readNext(ctx)
		if err == nil && next >= count {
			return nil
		}
		if err == nil {
			err = p.push(ctx, next, min(1000, count-next))
		}
		if err == nil {
			continue
		}
		select { // Redis may be down for a while; readNext tells what it has executed
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Waiting returns the length of the list.
func (p *Pusher) Waiting(ctx context.Context) (int64, error) {
	v, err := p.do(ctx, "LLEN", p.list)
	n, _ := v.(int64)
	return n, err
}

// FlushAll deletes all keys.
func (p *Pusher) FlushAll(ctx context.Context) error {
	_, err := p.do(ctx, "FLUSHALL")
	return err
}

func (p *Pusher) counterKey() string { return p.list + ":pushed" }

func (p *Pusher) readNext(ctx context.Context) (uint64, error) {
	v, err := p.do(ctx, "GET", p.counterKey())
	if v == nil || err != nil {
		return 0, err
	}
	return strconv.ParseUint(fmt.Sprint(v), 10, 64)
}

// do sends one command. After an error it disconnects, and the next command reconnects.
func (p *Pusher) do(ctx context.Context, args ...string) (any, error) {
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	v, err := p.conn.Do(ctx, args...)
	if err != nil {
		p.Close()
	}
	return v, err
}

func (p *Pusher) push(ctx context.Context, first, count uint64) error {
	err := p.conn.WithContext(ctx, func() error {
		p.conn.Queue("MULTI")
		p.conn.QueueHeader(2 + int(count))
		p.conn.QueueArg("RPUSH")
		p.conn.QueueArg(p.list)
		var event []byte
		for i := range count {
			event = generate.Append(event[:0], p.seed, first+i)
			p.conn.QueueBytes(event)
		}
		p.conn.Queue("SET", p.counterKey(), strconv.FormatUint(first+count, 10))
		p.conn.Queue("EXEC")
		if err := p.conn.Flush(); err != nil {
			return err
		}
		for range 4 {
			if _, err := p.conn.ReadReply(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		p.Close()
	}
	return err
}
