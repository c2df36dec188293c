package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

// A popper reads by a script that takes events away. They have no positions in
// Redis, so each reader counts from 0 in a partition of its own, that never was
// before.
type popper struct {
	source    *Source
	key       string
	partition string
	script    *lua
	conn      *resp.Conn
	next      uint64
	waiting   [][]byte // taken from Redis, not yet read
}

// anyGeneration is a name that never was before: 128 random bits.
func anyGeneration() string { return rand.Text() }

// Lag implements source.Reader: how much a script has left to pop is unknown.
func (p *popper) Lag() uint64 { return 0 }

// Read implements source.Reader.
func (p *popper) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = p.partition
	for wait := pollLeast; len(p.waiting) == 0; wait = min(2*wait, pollMost) {
		if err := p.pop(ctx); err != nil {
			p.disconnect()
			return p.source.explain("pop", &keyError{p.key, err})
		}
		if len(p.waiting) > 0 {
			break
		}
		if p.source.config.UntilEmpty {
			return io.EOF
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	p.fill(b)
	return nil
}

// fill moves what fits into b.
func (p *popper) fill(b *event.Batch) {
	limits := p.source.env.Limits
	for len(p.waiting) > 0 && b.Len() < limits.Events {
		if b.Len() > 0 && len(b.Data)+len(p.waiting[0]) > limits.Bytes {
			break
		}
		b.Append(p.waiting[0])
		p.waiting = p.waiting[1:]
	}
	b.Range.First, b.Range.Count = p.next, uint64(b.Len())
	p.next += b.Range.Count
}

// pop calls the script; one that Redis has forgotten is loaded again.
func (p *popper) pop(ctx context.Context) (err error) {
	for try := 0; ; try++ {
		if err = p.popOnce(ctx); !forgotten(err) || try > 0 {
			return err
		}
		p.disconnect()
	}
}

func (p *popper) popOnce(ctx context.Context) (err error) {
	if p.conn == nil {
		if p.conn, err = p.source.server.Dial(ctx); err != nil {
			return err
		}
		if err = p.conn.WithContext(ctx, func() error { return load(p.conn, p.script) }); err != nil {
			return err
		}
	}
	count := strconv.Itoa(p.source.env.Limits.Events)
	v, err := p.conn.Do(ctx, "EVALSHA", p.script.sha, "2", p.key, count, count)
	if refused := resp.ReplyError(""); errors.As(err, &refused) && !forgotten(err) {
		return &scriptError{p.script.name, err}
	}
	if err != nil {
		return err
	}
	return p.keep(v)
}

// keep takes what a script returned: an array of events, one event, or nothing.
func (p *popper) keep(v any) error {
	all, several := v.([]any)
	if !several && v != nil {
		all = []any{v}
	}
	for _, one := range all {
		text, ok := one.(string)
		if !ok {
			return &scriptError{p.script.name, errors.New("it must return an array of events")}
		}
		p.waiting = append(p.waiting, []byte(text))
	}
	return nil
}

// Ack implements source.Reader: Redis has nothing left to give up.
func (p *popper) Ack(context.Context, event.Range) error { return nil }

// Close implements source.Reader.
func (p *popper) Close(context.Context) error {
	if n := len(p.waiting); n > 0 {
		p.source.env.Log.Error("events were taken from Redis and not read", "key", p.key, "lost", n)
	}
	p.disconnect()
	return nil
}

func (p *popper) disconnect() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

var _ source.Reader = (*popper)(nil)
