//go:build linux && cgo

package eventstore

import (
	"context"

	"github.com/perigeedb/perigee/event"
)

// Positions implements sink.PositionStore.
func (s *eventSink) Positions(ctx context.Context) (map[string]event.Ranges, error) {
	table, err := s.connect()
	if err != nil {
		return nil, sinkError(err)
	}
	all, err := table.Positions(ctx, s.pipeline)
	return all, sinkError(err)
}

// SetPosition implements sink.PositionStore.
func (s *eventSink) SetPosition(ctx context.Context, partition string, next uint64) error {
	table, err := s.connect()
	if err != nil {
		return sinkError(err)
	}
	return sinkError(table.SetPosition(ctx, s.pipeline, partition, next))
}
