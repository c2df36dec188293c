//go:build cgo

package eventstore

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/perigeedb/perigee/event"
)

// A Partition is the right to append the outputs of one partition of a pipeline to a
// table. It ends when another TakeOver gets the partition.
type Partition struct {
	table  *Table
	key    partKey
	closed atomic.Bool
}

type partKey struct{ pipeline, partition string }

// A partitionState is what the writer knows of a partition that was taken over in this
// process.
type partitionState struct {
	owner     *Partition
	committed event.Ranges // without fingerprints, which stay in the store
	unjoined  int          // rows of perigee.ranges since they were last joined
}

// TakeOver takes the partition over from its previous owner. It returns the positions
// whose rows are committed, with their fingerprints.
func (t *Table) TakeOver(ctx context.Context, pipeline, partition string) (*Partition, event.Ranges, error) {
	p := &Partition{table: t, key: partKey{pipeline, partition}}
	var done event.Ranges
	err := t.store.inTransaction(ctx, func(tx *conn) (func(), error) {
		var err error
		if done, err = t.readRanges(tx, p.key); err != nil {
			return nil, err
		}
		return func() {
			t.partitions[p.key] = &partitionState{owner: p, committed: withoutPrints(done), unjoined: unjoinedMax}
		}, nil
	})
	return p, done, err
}

// errStale says that the table's schema has grown since the columns were
// extracted.
var errStale = errors.New("eventstore: stale schema")

// Append makes the rows of out and its range durable, or neither. It skips rows of
// positions that are already committed. Several goroutines may call it at the same
// time; it keeps no reference to out.
//
// *RejectedRows names rows that can never be stored. ErrFenced ends the partition. After
// any other error nothing is stored, and the caller may retry.
func (p *Partition) Append(ctx context.Context, out *event.Output) error {
	d := p.table.acquireBuffer()
	defer p.table.releaseBuffer(d)
	for {
		if p.closed.Load() {
			return ErrClosed
		}
		if err := d.extract(p.table, out); err != nil {
			return err
		}
		err := p.table.store.submit(ctx, request{rows: &pendingAppend{part: p, out: out, buffer: d}})
		if err != errStale {
			return err
		}
	}
}

// Close releases the partition.
func (p *Partition) Close() error {
	p.closed.Store(true)
	return nil
}
