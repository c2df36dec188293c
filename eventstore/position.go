//go:build linux && cgo

package eventstore

import (
	"context"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// Positions returns the committed positions of each partition of a pipeline, without
// fingerprints.
func (t *Table) Positions(_ context.Context, pipeline string) (map[string]event.Ranges, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]event.Ranges{}
	for key, state := range t.partitions {
		if key.pipeline == pipeline && len(state.committed) > 0 {
			all[key.partition] = withoutPrints(state.committed)
		}
	}
	return all, nil
}

// SetPosition marks all positions before next as committed, and all others as not committed.
// It fences the partition's owner.
func (t *Table) SetPosition(ctx context.Context, pipeline, partition string, next uint64) error {
	release, err := t.use()
	if err != nil {
		return err
	}
	defer release()
	key := partKey{pipeline, partition}
	if err := t.fence(ctx, key, nil); err != nil {
		return err
	}
	change := manifest.RangeChange{Pipeline: pipeline, Partition: partition, Reset: true, Range: event.Range{Count: next}}
	frame := wal.AppendEntry(nil, &wal.Entry{Kind: wal.Reset, Table: t.id, Pipeline: pipeline, Partition: partition, Range: change.Range})
	t.mu.Lock()
	state := t.state(key)
	state.appending = append(state.appending, change.Range)
	t.mu.Unlock()
	return t.logChange(ctx, change, 0, frame)
}
