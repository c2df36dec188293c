//go:build cgo

package eventstore

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/perigeedb/perigee/event"
)

// A Partition is the right to append what came of one partition of a pipeline
// to a table, until somebody else takes it.
type Partition struct {
	table  *Table
	key    partKey
	closed atomic.Bool
}

type partKey struct{ pipeline, partition string }

// part is what the writer knows of a partition that was taken in this process.
type part struct {
	owner *Partition
	have  event.Ranges // without fingerprints: those stay in the store
	loose int          // rows of perigee.ranges since they were last joined
}

// Take takes the partition over from whoever has it, and returns the positions
// whose rows the table has, with the fingerprints that came with them.
func (t *Table) Take(ctx context.Context, pipeline, partition string) (*Partition, event.Ranges, error) {
	p := &Partition{table: t, key: partKey{pipeline, partition}}
	var done event.Ranges
	err := t.store.do(ctx, func(tx *conn) (func(), error) {
		var err error
		if done, err = t.readRanges(tx, p.key); err != nil {
			return nil, err
		}
		return func() { t.parts[p.key] = &part{owner: p, have: bare(done), loose: loosePartsMax} }, nil
	})
	return p, done, err
}

// Ranges returns the positions of a partition whose rows the table has.
func (t *Table) Ranges(ctx context.Context, pipeline, partition string) (event.Ranges, error) {
	var done event.Ranges
	err := t.store.do(ctx, func(tx *conn) (func(), error) {
		var err error
		done, err = t.readRanges(tx, partKey{pipeline, partition})
		return func() {}, err
	})
	return done, err
}

// errStale says that the table's schema has grown since the columns were
// extracted.
var errStale = errors.New("eventstore: stale schema")

// Append makes the rows of out and its range durable, or neither. Rows of
// positions that the table already has are skipped. It may be called by several
// goroutines at the same time; out belongs to the caller again afterwards.
//
// *Refused names rows that can never be stored; ErrFenced ends the partition.
// Any other error leaves nothing behind, and the caller may come again.
func (p *Partition) Append(ctx context.Context, out *event.Output) error {
	d := p.table.desk()
	defer p.table.release(d)
	for {
		if p.closed.Load() {
			return ErrClosed
		}
		if err := d.extract(p.table, out); err != nil {
			return err
		}
		err := p.table.store.submit(ctx, task{rows: &rows{part: p, out: out, desk: d}})
		if err != errStale {
			return err
		}
	}
}

// Close gives the partition up.
func (p *Partition) Close() error {
	p.closed.Store(true)
	return nil
}
