package redis

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// Positions implements sink.PositionStore.
func (s *Sink) Positions(ctx context.Context) (map[string]event.Ranges, error) {
	all := make(map[string]event.Ranges)
	err := s.with(ctx, func(c *resp.Conn) error {
		v, err := c.Do(ctx, "SMEMBERS", s.common("partitions"))
		if err != nil {
			return err
		}
		names, _ := v.([]any)
		for _, name := range names {
			partition := fmt.Sprint(name)
			kept, err := c.Do(ctx, "HGETALL", s.key("ranges", partition))
			if err != nil {
				return err
			}
			pairs, _ := kept.([]any)
			entries, err := readEntries(pairs, 0)
			if err != nil {
				return err
			}
			all[partition] = together(entries)
		}
		return nil
	})
	if err != nil {
		return nil, s.explain("ask for positions", err)
	}
	return all, nil
}

func together(entries []positions.Entry) (all event.Ranges) {
	for _, e := range entries {
		all.Add(e.Range)
	}
	return all
}

// SetPosition implements sink.PositionStore. The fingerprints of what stays known stay.
func (s *Sink) SetPosition(ctx context.Context, partition string, next uint64) error {
	b := &book{sink: s, partition: partition, token: s.owner + ":position:" + rand.Text()[:12]}
	entries, err := b.own(ctx, false)
	if err == nil {
		var kept event.Ranges
		for _, r := range together(entries).Intersect(event.Ranges{{Count: next}}) {
			kept.Add(r)
		}
		kept.Add(event.Range{Count: next})
		err = b.replace(ctx, "", "", kept...)
	}
	return s.explain("set the position of partition "+partition, err)
}
