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
	"github.com/perigeedb/perigee/source/format"
)

// A popReader reads with a script that removes events. Such events have no positions in
// Redis, so each process counts from 0 in a partition with a random name.
type popReader struct {
	source    *Source
	key       string
	partition string
	script    *userScript
	decoder   *format.Decoder
	conn      *resp.Conn
	next      uint64
	popped    [][]byte // removed from Redis and not yet read
}

// randomGeneration returns a name with 128 random bits.
func randomGeneration() string { return rand.Text() }

// Lag implements source.Reader. How many events a script has left to pop is unknown.
func (p *popReader) Lag() uint64 { return 0 }

// Read implements source.Reader.
func (p *popReader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = p.partition
	for wait := pollMin; len(p.popped) == 0; wait = min(2*wait, pollMax) {
		if err := p.popEvents(ctx); err != nil {
			p.disconnect()
			return p.source.wrapError("pop", &keyError{p.key, err})
		}
		if len(p.popped) > 0 {
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
	p.moveToBatch(b)
	p.decoder.Decode(b)
	return nil
}

// moveToBatch moves the popped events that fit to b.
func (p *popReader) moveToBatch(b *event.Batch) {
	limits := p.source.env.Limits
	for len(p.popped) > 0 && b.Len() < limits.Events {
		if b.Len() > 0 && len(b.Data)+len(p.popped[0]) > limits.Bytes {
			break
		}
		b.Append(p.popped[0])
		p.popped = p.popped[1:]
	}
	b.Range.First, b.Range.Count = p.next, uint64(b.Len())
	p.next += b.Range.Count
}

// popEvents calls the script. It loads the script again if the server lost it.
func (p *popReader) popEvents(ctx context.Context) (err error) {
	for try := 0; ; try++ {
		if err = p.callScript(ctx); !isNoScript(err) || try > 0 {
			return err
		}
		p.disconnect()
	}
}

func (p *popReader) callScript(ctx context.Context) (err error) {
	if p.conn == nil {
		if p.conn, err = p.source.server.Dial(ctx); err != nil {
			return err
		}
		if err = p.conn.WithContext(ctx, func() error { return loadScripts(p.conn, p.script) }); err != nil {
			return err
		}
	}
	count := strconv.Itoa(p.source.env.Limits.Events)
	v, err := p.conn.Do(ctx, "EVALSHA", p.script.sha, "2", p.key, count, count)
	if errors.As(err, new(resp.ReplyError)) && !isNoScript(err) {
		return &scriptError{p.script.name, err}
	}
	if err != nil {
		return err
	}
	return p.addPopped(v)
}

// addPopped adds what a script returned: an array of events, one event, or nil.
func (p *popReader) addPopped(v any) error {
	all, several := v.([]any)
	if !several && v != nil {
		all = []any{v}
	}
	for _, one := range all {
		text, ok := one.(string)
		if !ok {
			return &scriptError{p.script.name, errors.New("it must return an array of events")}
		}
		p.popped = append(p.popped, []byte(text))
	}
	return nil
}

// Ack implements source.Reader. Redis has nothing left to remove.
func (p *popReader) Ack(context.Context, event.Range) error { return nil }

// Close implements source.Reader.
func (p *popReader) Close(context.Context) error {
	if n := len(p.popped); n > 0 {
		p.source.env.Log.Error("popped events are lost: they were not read", "key", p.key, "lost", n)
	}
	p.disconnect()
	return nil
}

func (p *popReader) disconnect() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}
