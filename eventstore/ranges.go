//go:build cgo

package eventstore

import (
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
)

const (
	// Each commit adds a row to perigee.ranges. After this many they are joined.
	unjoinedMax = 1000
	// Rows of at least this many events stay as they are, so that what is joined
	// does not grow with the age of the table.
	joinedMin = 1 << 16
	// Fingerprints are kept for so long, but of no more than so many events of a
	// partition. Older ranges are joined without.
	printAge    = 2 * time.Hour
	printEvents = 16_000_000
)

// missing returns the parts of r that neither set has, sharing no room to grow
// with the fingerprints of r.
func missing(r event.Range, have, added event.Ranges) []event.Range {
	var gaps []event.Range
	for _, gap := range have.Missing(r) {
		gaps = append(gaps, added.Missing(gap)...)
	}
	for i := range gaps {
		gaps[i].Prints = slices.Clip(gaps[i].Prints)
	}
	return gaps
}

// freshRows yields the rows of out whose positions lie in fresh, as [first, end).
func freshRows(out *event.Output, fresh event.Ranges) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		if fresh.Covers(out.Range.First, out.Range.End()) {
			if out.Len() > 0 {
				yield(0, out.Len())
			}
			return
		}
		for first := 0; first < out.Len(); first++ {
			end := first
			for end < out.Len() && fresh.Has(out.Position(end)) {
				end++
			}
			if end > first && !yield(first, end) {
				return
			}
			first = end
		}
	}
}

// withoutPrints returns the set without its fingerprints.
func withoutPrints(done event.Ranges) event.Ranges {
	var set event.Ranges
	for _, r := range done {
		set.Add(event.Range{First: r.First, Count: r.Count})
	}
	return set
}

const partWhere = ` FROM perigee.ranges WHERE name = ? AND pipeline = ? AND part = ?`

func (t *Table) readRanges(tx *conn, key partKey) (event.Ranges, error) {
	rows, err := tx.run(`SELECT first, events, prints`+partWhere+` ORDER BY first`, t.name, key.pipeline, key.partition)
	if err != nil {
		return nil, err
	}
	return decodeRanges(rows), nil
}

func decodeRanges(rows [][]any) event.Ranges {
	var done event.Ranges
	for _, row := range rows {
		r := event.Range{First: row[0].(uint64), Count: row[1].(uint64)}
		if prints, ok := row[2].([]byte); ok {
			for ; len(prints) > 0; prints = prints[4:] {
				r.Prints = append(r.Prints, binary.LittleEndian.Uint32(prints))
			}
		}
		done.Add(r)
	}
	return done
}

// writeRanges adds ranges to those of a partition, and joins rows when enough
// are loose. It returns how many are loose then.
func (t *Table) writeRanges(tx *conn, key partKey, added event.Ranges, part *partitionState) (loose int, err error) {
	rows, loose := added, part.unjoined+len(added)
	if part.unjoined >= unjoinedMax {
		if rows, err = t.deleteJoinable(tx, key, newest(part.committed, printEvents)); err != nil {
			return 0, err
		}
		for _, r := range added {
			rows.Add(r)
		}
		loose = 0
	}
	for _, r := range rows {
		if err := t.insertRange(tx, key, r); err != nil {
			return 0, err
		}
	}
	return loose, nil
}

// newest returns the position from which on the last n events of have lie.
func newest(have event.Ranges, n uint64) uint64 {
	for _, r := range slices.Backward(have) {
		if r.Count >= n {
			return r.End() - n
		}
		n -= r.Count
	}
	return 0
}

// deleteJoinable deletes the rows of a partition that can be joined and returns
// them, joined: small ones, and those that lose their fingerprints or have none.
// They lose them by age, or because they end before position from.
func (t *Table) deleteJoinable(tx *conn, key partKey, from uint64) (event.Ranges, error) {
	const old = `(committed < $4 OR first + events <= $5)`
	const joined = ` FROM perigee.ranges WHERE name = $1 AND pipeline = $2 AND part = $3
		AND (events < $6 OR prints IS NULL OR ` + old + `)`
	args := []any{t.name, key.pipeline, key.partition, time.Now().Add(-printAge).Unix(), from, uint64(joinedMin)}
	rows, err := tx.run(`SELECT first, events, CASE WHEN `+old+` THEN NULL ELSE prints END`+joined+` ORDER BY first`, args...)
	if err != nil {
		return nil, err
	}
	_, err = tx.run(`DELETE`+joined, args...)
	return decodeRanges(rows), err
}

func (t *Table) insertRange(tx *conn, key partKey, r event.Range) error {
	const into = `INSERT INTO perigee.ranges VALUES (?, ?, ?, ?, ?, ?, `
	args := []any{t.name, key.pipeline, key.partition, r.First, r.Count, time.Now().Unix()}
	if len(r.Prints) == 0 {
		_, err := tx.run(into+`NULL)`, args...)
		return err
	}
	prints := make([]byte, 0, 4*len(r.Prints))
	for _, print := range r.Prints {
		prints = binary.LittleEndian.AppendUint32(prints, print)
	}
	_, err := tx.run(into+`?)`, append(args, prints)...)
	return err
}
