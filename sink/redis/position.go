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
	err := s.withConn(ctx, func(c *resp.Conn) error {
		v, err := c.Do(ctx, "SMEMBERS", s.sharedKey("partitions"))
		if err != nil {
			return err
		}
		names, _ := v.([]any)
		for _, name := range names {
			partition := fmt.Sprint(name)
			kept, err := c.Do(ctx, "HGETALL", s.partitionKey("ranges", partition))
			if err != nil {
				return err
			}
			pairs, _ := kept.([]any)
			entries, err := readEntries(pairs, 0)
			if err != nil {
				return err
			}
			all[partition] = mergeEntries(entries)
		}
		return nil
	})
	if err != nil {
		return nil, s.wrapError("read positions", err)
	}
	return all, nil
}

func mergeEntries(entries []positions.Entry) (all event.Ranges) {
	for _, e := range entries {
		all.Add(e.Range)
	}
	return all
}

// SetPosition implements sink.PositionStore. The fingerprints of what stays known stay.
func (s *Sink) SetPosition(ctx context.Context, partition string, next uint64) error {
	p := &partitionStore{sink: s, partition: partition, token: s.owner + ":position:" + rand.Text()[:12]}
	entries, err := p.takeOver(ctx, false)
	if err == nil {
		var kept event.Ranges
		for _, r := range mergeEntries(entries).Intersect(event.Ranges{{Count: next}}) {
			kept.Add(r)
		}
		kept.Add(event.Range{Count: next})
		err = p.replace(ctx, "", "", kept...)
	}
	return s.wrapError("set the position of partition "+partition, err)
}
