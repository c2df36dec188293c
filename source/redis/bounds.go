package redis

import (
	"context"

	"github.com/perigeedb/perigee/event"
)

// bounds leaves out keys that no reader has opened yet: they have no positions.
func (s *Source) bounds(ctx context.Context) (map[string]event.Range, error) {
	bounds := map[string]event.Range{}
	if s.form == asPop {
		return bounds, nil
	}
	c, err := s.server.Dial(ctx)
	if err != nil {
		return nil, s.explain("look for keys", err)
	}
	defer c.Close()
	var keys []string
	if err := c.WithContext(ctx, func() (err error) { keys, err = s.find(c); return err }); err != nil {
		return nil, s.explain("look for keys", err)
	}
	for _, key := range keys {
		now, err := s.lookAt(ctx, key)
		if err != nil {
			return nil, s.explain("look", &keyError{key, err})
		}
		if now.state.generation == "" || s.ours(key, now.state.pipeline) != nil {
			continue
		}
		bounds[partitionName(key, now.state.generation)] = event.Range{First: now.state.head, Count: uint64(now.length + max(0, now.gone))}
	}
	return bounds, nil
}

// lookAt reads what stands beside a key, and no event.
func (s *Source) lookAt(ctx context.Context, key string) (peek, error) {
	r := &reader{source: s, key: key, queue: s.queue(key)}
	defer r.disconnect()
	if err := r.dial(ctx); err != nil {
		return peek{}, err
	}
	return r.look(ctx)
}
