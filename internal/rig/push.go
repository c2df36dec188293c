package rig

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/source/generate"
)

// A Pusher appends generated events to a Redis list, each exactly once whatever
// happens to Redis: the number of the next event stands beside the list and
// changes in the same transaction. It is used by one goroutine.
type Pusher struct {
	client rueidis.Client
	list   string
	seed   uint64
}

// NewPusher connects to Redis.
func NewPusher(address, list string, seed uint64) (*Pusher, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true, ForceSingleClient: true, DisableRetry: true})
	if err != nil {
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	return &Pusher{client: client, list: list, seed: seed}, nil
}

// Close ends the connection.
func (p *Pusher) Close() { p.client.Close() }

// Upto pushes events until count of them have been pushed in all.
func (p *Pusher) Upto(ctx context.Context, count uint64) error {
	for {
		next, err := p.next(ctx)
		if err == nil && next >= count {
			return nil
		}
		if err == nil {
			err = p.push(ctx, next, min(1000, count-next))
		}
		if err == nil {
			continue
		}
		select { // Redis may be away for a while: what is pushed is asked again
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Waiting is the number of events in the list.
func (p *Pusher) Waiting(ctx context.Context) (int64, error) {
	return p.client.Do(ctx, p.client.B().Llen().Key(p.list).Build()).AsInt64()
}

// Forget removes the list and all that stands beside it.
func (p *Pusher) Forget(ctx context.Context) error {
	return p.client.Do(ctx, p.client.B().Flushall().Build()).Error()
}

func (p *Pusher) counter() string { return p.list + ":pushed" }

func (p *Pusher) next(ctx context.Context) (uint64, error) {
	next, err := p.client.Do(ctx, p.client.B().Get().Key(p.counter()).Build()).AsUint64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return next, err
}

func (p *Pusher) push(ctx context.Context, first, count uint64) error {
	events := make([]string, count)
	for i := range events {
		events[i] = string(generate.Append(nil, p.seed, first+uint64(i)))
	}
	b := p.client.B()
	for _, reply := range p.client.DoMulti(ctx,
		b.Multi().Build(),
		b.Rpush().Key(p.list).Element(events...).Build(),
		b.Set().Key(p.counter()).Value(strconv.FormatUint(first+count, 10)).Build(),
		b.Exec().Build(),
	) {
		if err := reply.Error(); err != nil {
			return err
		}
	}
	return nil
}
