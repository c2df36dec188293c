//go:build cgo

package eventstore

import (
	"context"

	"github.com/perigeedb/perigee/event"
)

// Positions returns the positions whose rows the table has, by partition of a
// pipeline and without fingerprints.
func (t *Table) Positions(ctx context.Context, pipeline string) (map[string]event.Ranges, error) {
	all := map[string]event.Ranges{}
	err := t.store.inTransaction(ctx, func(tx *conn) (func(), error) {
		rows, err := tx.run(`SELECT part, first, events FROM perigee.ranges WHERE name = ? AND pipeline = ?`, t.name, pipeline)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			ranges := all[row[0].(string)]
			ranges.Add(event.Range{First: row[1].(uint64), Count: row[2].(uint64)})
			all[row[0].(string)] = ranges
		}
		return func() {}, nil
	})
	return all, err
}

// SetPosition counts all positions of a partition before next as committed, and
// forgets the others. It fences the partition's owner.
func (t *Table) SetPosition(ctx context.Context, pipeline, partition string, next uint64) error {
	key := partKey{pipeline, partition}
	return t.store.inTransaction(ctx, func(tx *conn) (func(), error) {
		have, err := t.readRanges(tx, key)
		if err != nil {
			return nil, err
		}
		if _, err := tx.run(`DELETE`+partWhere, t.name, key.pipeline, key.partition); err != nil {
			return nil, err
		}
		for _, r := range headRanges(have, next) {
			if err := t.insertRange(tx, key, r); err != nil {
				return nil, err
			}
		}
		return func() { delete(t.partitions, key) }, nil
	})
}

// headRanges returns all positions before next, with the fingerprints that have has.
func headRanges(have event.Ranges, next uint64) event.Ranges {
	var kept event.Ranges
	for _, r := range have {
		if r.First < next {
			kept.Add(r.Head(min(r.Count, next-r.First)))
		}
	}
	kept.Add(event.Range{Count: next})
	return kept
}
