//go:build linux && cgo

package eventstore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A Partition is the exclusive right to append the outputs of one pipeline partition to a
// table. The next TakeOver of the partition fences it.
type Partition struct {
	table  *Table
	key    partKey
	closed atomic.Bool
}

type partKey struct{ pipeline, partition string }

// A partitionState records the positions of a partition that a table has committed. Table.mu
// protects it.
type partitionState struct {
	owner     *Partition
	committed event.Ranges // without fingerprints
	sealed    event.Ranges // subset of committed that is in the manifest
	logged    []logChange  // changes in the log, oldest first
	appending []event.Range
	appended  chan struct{} // closed and replaced when an append ends
}

// A logChange is a change of the committed positions that is in a file of the log.
type logChange struct {
	file uint64
	manifest.RangeChange
}

func newPartitionState() *partitionState { return &partitionState{appended: make(chan struct{})} }

// state returns the state of a partition and creates it if needed. The caller holds t.mu.
func (t *Table) state(key partKey) *partitionState {
	p := t.partitions[key]
	if p == nil {
		p = newPartitionState()
		t.partitions[key] = p
	}
	return p
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
	p := &Partition{table: t, key: partKey{pipeline, partition}}
	if err := t.fence(ctx, p.key, p); err != nil {
		return nil, nil, err
	}
	done, err := t.readRanges(p.key)
	return p, done, err
}

// fence makes owner, which may be nil, the owner of a partition and waits for the appends of
// the previous owner.
func (t *Table) fence(ctx context.Context, key partKey, owner *Partition) error {
	t.mu.Lock()
	state := t.state(key)
	state.owner = owner
	for len(state.appending) > 0 {
		appended := state.appended
		t.mu.Unlock()
		select {
		case <-appended:
		case <-ctx.Done():
			return ctx.Err()
		}
		t.mu.Lock()
	}
	t.mu.Unlock()
	return nil
}

// Append durably stores the rows of out together with its range, or stores nothing. It skips
// rows whose positions are already committed. It is safe for concurrent use and keeps no
// reference to out.
//
// It returns *RejectedRows if rows can never be stored. After ErrFenced or ErrDropped the
// Partition is unusable. After any other error nothing is stored, and the caller may retry.
func (p *Partition) Append(ctx context.Context, out *event.Output) error {
	if p.closed.Load() || p.table.store.isClosed() {
		return ErrClosed
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
	fresh, err := p.reserve(ctx, out.Range)
	if err != nil || len(fresh) == 0 {
		return err
	}
	now := time.Now()
	rows, claim, err := p.table.claimKeys(ctx, b, freshRows(out, fresh), now)
	if err != nil {
		p.table.cancelReservation(p.key, out.Range)
		return err
	}
	change := manifest.RangeChange{Pipeline: p.key.pipeline, Partition: p.key.partition, Range: out.Range}
	err = p.table.logChange(ctx, change, b.schema.Version, b.encode(p, out.Range, rows, now))
	claim.end(err == nil)
	return err
}

// reserve waits until no other append holds a position of r, and returns the positions that
// are not committed. If the result is not empty, the caller ends the reservation with
// logChange or cancelReservation.
func (p *Partition) reserve(ctx context.Context, r event.Range) (event.Ranges, error) {
	t := p.table
	t.mu.Lock()
	defer t.mu.Unlock()
	state := t.state(p.key)
	for {
		if state.owner != p {
			return nil, ErrFenced
		}
		if !overlapsAny(r, state.appending) {
			break
		}
		appended := state.appended
		t.mu.Unlock()
		select {
		case <-appended:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	fresh := event.Ranges(state.committed.Missing(event.Range{First: r.First, Count: r.Count}))
	if len(fresh) > 0 {
		state.appending = append(state.appending, r)
	}
	return fresh, nil
}

func overlapsAny(r event.Range, all []event.Range) bool {
	for _, a := range all {
		if r.First < a.End() && a.First < r.End() {
			return true
		}
	}
	return false
}

// logChange makes a frame durable, records its committed range, and ends the reservation of the
// range.
func (t *Table) logChange(ctx context.Context, change manifest.RangeChange, schema uint64, frame []byte) error {
	defer t.store.appends.begin()()
	at, err := wal.Position{}, ErrClosed
	if !t.store.isClosed() {
		at, err = t.store.log.Append(ctx, frame)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state(partKey{change.Pipeline, change.Partition}).endReservation(change.Range)
	if err != nil {
		return err
	}
	// The caller reuses the memory of its range.
	change.Range.Prints = slices.Clone(change.Range.Prints)
	t.recordCommitted(at.File, schema, change)
	return nil
}

// cancelReservation ends a reservation after nothing was logged.
func (t *Table) cancelReservation(key partKey, r event.Range) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state(key).endReservation(r)
}

// endReservation removes a range from the running appends.
func (p *partitionState) endReservation(r event.Range) {
	i := slices.IndexFunc(p.appending, func(a event.Range) bool { return a.First == r.First && a.Count == r.Count })
	p.appending = slices.Delete(p.appending, i, i+1)
	close(p.appended)
	p.appended = make(chan struct{})
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

// recordCommitted records the range that a frame in a log file commits. The caller holds t.mu.
func (t *Table) recordCommitted(file, schema uint64, change manifest.RangeChange) {
	if t.schemasOf[file] == nil {
		t.schemasOf[file] = map[uint64]bool{}
	}
	t.schemasOf[file][schema] = true
	state := t.state(partKey{change.Pipeline, change.Partition})
	plain := change
	plain.Range.Prints = nil
	state.committed = plain.Apply(state.committed)
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
		len(c.Range.Prints) == 0 && len(next.Range.Prints) == 0
}

// rangeChange returns the change that a frame commits.
func rangeChange(e *wal.Entry) manifest.RangeChange {
	return manifest.RangeChange{Pipeline: e.Pipeline, Partition: e.Partition, Reset: e.Kind == wal.Reset, Range: e.Range}
}

// Close releases the partition.
func (p *Partition) Close() error {
	p.closed.Store(true)
	return nil
}

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
