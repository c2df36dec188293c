//go:build linux && cgo

package eventstore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/event/ledger"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A Partition is the exclusive right to append the outputs of one pipeline partition to a
// table. The next TakeOver of the partition fences it.
type Partition struct {
	table *Table
	key   partKey
	owner *ledger.Owner
}

type partKey struct{ pipeline, partition string }

// A partitionState records the positions of a partition that a table has committed. Table.mu
// protects it.
type partitionState struct {
	ledger *ledger.Ledger
	sealed event.Ranges // committed by the manifest, without fingerprints
	logged []logChange  // committed by the log, oldest first
}

// A logChange is a change of the committed positions that is in a file of the log.
type logChange struct {
	file uint64
	manifest.RangeChange
}

// state returns the state of a partition and creates it if needed. The caller holds t.mu.
func (t *Table) state(key partKey) *partitionState {
	p := t.partitions[key]
	if p == nil {
		p = &partitionState{ledger: ledger.New(nil, nil)}
		t.partitions[key] = p
	}
	return p
}

// loadLedgers builds the ledgers from the positions in the manifest and the log.
func (t *Table) loadLedgers() {
	for _, state := range t.partitions {
		state.ledger = ledger.New(state.sealedUpTo(math.MaxUint64), nil)
	}
}

// ledger returns the ledger of a partition.
func (t *Table) ledger(key partKey) *ledger.Ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state(key).ledger
}

// TakeOver takes the partition over from its previous owner. It returns the committed
// positions with their fingerprints.
func (t *Table) TakeOver(ctx context.Context, pipeline, partition string) (*Partition, event.Ranges, error) {
	if t.store.isClosed() {
		return nil, nil, ErrClosed
	}
	release, err := t.use()
	if err != nil {
		return nil, nil, err
	}
	defer release()
	key := partKey{pipeline, partition}
	l := t.ledger(key)
	p := &Partition{table: t, key: key, owner: l.TakeOver()}
	if err := l.Drain(ctx); err != nil {
		return nil, nil, err
	}
	done, err := t.readRanges(key)
	return p, done, err
}

// Append durably stores the rows of out together with its range, or stores nothing. It skips
// rows whose positions are already committed. It is safe for concurrent use and keeps no
// reference to out.
//
// It returns *RejectedRows if rows can never be stored. After ErrFenced or ErrDropped the
// Partition is unusable. After any other error nothing is stored, and the caller may retry.
func (p *Partition) Append(ctx context.Context, out *event.Output) error {
	if p.table.store.isClosed() {
		return ErrClosed
	}
	if err := p.owner.Err(); err != nil {
		return err
	}
	release, err := p.table.use()
	if err != nil {
		return err
	}
	defer release()
	b := p.table.acquireBuffer()
	defer p.table.releaseBuffer(b)
	defer p.table.computing.begin()()
	out, err = p.table.compute(ctx, out, b)
	if err != nil {
		return err
	}
	if err := b.extract(p.table, out); err != nil {
		return err
	}
	defer p.table.holdSchema(b.schema.Version)()
	if err := p.table.installSchema(ctx, b.schema); err != nil {
		return err
	}
	return p.appendExtracted(ctx, out, b)
}

// appendExtracted appends the columns that b extracted from out.
func (p *Partition) appendExtracted(ctx context.Context, out *event.Output, b *buffer) error {
	if err := p.table.store.waitForRoom(ctx); err != nil {
		return err
	}
	held, err := p.owner.Reserve(ctx, out.Range)
	if err != nil {
		return err
	}
	how := ledger.Committed
	if err = p.appendMissing(ctx, out, b, held); err != nil {
		how = ledger.Aborted // after an error the log has nothing of the frame
	}
	held.Finish(how)
	return err
}

// appendMissing appends the rows of out that come from missing positions.
func (p *Partition) appendMissing(ctx context.Context, out *event.Output, b *buffer, held ledger.Reservation) error {
	if len(held.Missing) == 0 {
		return nil
	}
	now := time.Now()
	rows, claim, err := p.table.claimKeys(ctx, b, missingRows(out, held), now)
	if err != nil {
		return err
	}
	change := manifest.RangeChange{Pipeline: p.key.pipeline, Partition: p.key.partition, Range: out.Range}
	err = p.table.logChange(ctx, change, b.schema.Version, b.encode(p, out.Range, rows, now))
	claim.end(err == nil)
	return err
}

// logChange makes a frame durable and records the change that it commits.
func (t *Table) logChange(ctx context.Context, change manifest.RangeChange, schema uint64, frame []byte) error {
	defer t.store.appends.begin()()
	if t.store.isClosed() {
		return ErrClosed
	}
	at, err := t.store.log.Append(ctx, frame)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The caller reuses the memory of its range.
	change.Range.Fingerprints = slices.Clone(change.Range.Fingerprints)
	t.recordLogged(at.File, schema, change)
	return nil
}

// holdSchema keeps a schema version in the manifest until the caller calls release.
func (t *Table) holdSchema(version uint64) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.encoding[version]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.encoding[version]--; t.encoding[version] == 0 {
			delete(t.encoding, version)
		}
	}
}

// recordLogged records the change that a frame in a log file commits. The caller holds t.mu.
func (t *Table) recordLogged(file, schema uint64, change manifest.RangeChange) {
	if t.schemasOf[file] == nil {
		t.schemasOf[file] = map[uint64]bool{}
	}
	t.schemasOf[file][schema] = true
	state := t.state(partKey{change.Pipeline, change.Partition})
	if n := len(state.logged); n > 0 && state.logged[n-1].joins(file, &change) {
		state.logged[n-1].Range.Count += change.Range.Count
		return
	}
	state.logged = append(state.logged, logChange{file, change})
}

// joins reports whether next extends c: both are in the same file, adjacent, and have no
// fingerprints.
func (c *logChange) joins(file uint64, next *manifest.RangeChange) bool {
	return c.file == file && !c.Reset && !next.Reset && c.Range.End() == next.Range.First &&
		len(c.Range.Fingerprints) == 0 && len(next.Range.Fingerprints) == 0
}

// rangeChange returns the change that a frame commits.
func rangeChange(e *wal.Entry) manifest.RangeChange {
	return manifest.RangeChange{Pipeline: e.Pipeline, Partition: e.Partition, Reset: e.Kind == wal.Reset, Range: e.Range}
}

// Close releases the partition.
func (p *Partition) Close() error {
	p.owner.Fail(ErrClosed)
	return nil
}

// Positions returns the committed positions of each partition of a pipeline, without
// fingerprints.
func (t *Table) Positions(_ context.Context, pipeline string) (map[string]event.Ranges, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]event.Ranges{}
	for key, state := range t.partitions {
		if key.pipeline != pipeline {
			continue
		}
		if committed := state.ledger.Committed(); len(committed) > 0 {
			all[key.partition] = committed
		}
	}
	return all, nil
}

// SetPosition marks all positions before next as committed, and all others as not committed.
// It fences the partition's owner. A new owner waits for it.
func (t *Table) SetPosition(ctx context.Context, pipeline, partition string, next uint64) error {
	release, err := t.use()
	if err != nil {
		return err
	}
	defer release()
	change := manifest.RangeChange{Pipeline: pipeline, Partition: partition, Reset: true, Range: event.Range{Count: next}}
	frame := wal.AppendEntry(nil, &wal.Entry{Kind: wal.Reset, Table: t.id, Pipeline: pipeline, Partition: partition, Range: change.Range})
	return t.ledger(partKey{pipeline, partition}).Replace(ctx, func() (event.Ranges, error) {
		return change.Apply(nil), t.logChange(ctx, change, 0, frame)
	})
}
