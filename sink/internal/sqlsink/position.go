package sqlsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// Positions implements sink.PositionStore.
func (s *Store) Positions(ctx context.Context) (map[string]event.Ranges, error) {
	all := map[string]event.Ranges{}
	err := s.connect(ctx, "reading the positions", func(c Conn) error {
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT first, events, %s FROM %s JOIN %s r ON r.owner = id WHERE %s",
			s.Quote("partition"), s.Table(OwnersTable), s.Table(RangesTable), s.where()))
		if err != nil {
			return err
		}
		clear(all)
		for _, row := range rows {
			var r event.Range
			if r.First, r.Count, err = parsePair(row); err != nil {
				return err
			}
			ranges := all[string(row[2])]
			ranges.Add(r)
			all[string(row[2])] = ranges
		}
		return nil
	})
	return all, err
}

// SetPosition implements sink.PositionStore. It raises the epoch first, whose lock
// keeps all others from committing until the ranges are what they should be.
func (s *Store) SetPosition(ctx context.Context, partition string, next uint64) error {
	return s.connect(ctx, "setting the position of partition "+partition, func(c Conn) error {
		if err := s.insertOwner(ctx, c, partition); err != nil {
			return err
		}
		if err := c.Exec(ctx, "START TRANSACTION;"+s.raiseEpoch(partition, Process()+":position")); err != nil {
			return err
		}
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT id, epoch FROM %s WHERE %s FOR UPDATE", s.Table(OwnersTable), s.wherePartition(partition)))
		if err != nil {
			return err
		}
		id, epoch, err := parsePair(rows[0])
		if err == nil {
			err = s.setRanges(ctx, c, id, epoch, next)
		}
		if err == nil {
			err = c.Exec(ctx, "COMMIT")
		}
		return err
	})
}

// setRanges deletes the committed ranges at next and after, and counts all positions before it as
// committed. Ranges that remain keep their fingerprints.
func (s *Store) setRanges(ctx context.Context, c Conn, id, epoch, next uint64) error {
	table, count := s.Table(RangesTable), fmt.Sprintf("(%d - first)", next)
	err := c.Exec(ctx, fmt.Sprintf("DELETE FROM %s WHERE owner = %d AND first >= %d;UPDATE %[1]s SET prints = %[4]s, events = %[5]s WHERE owner = %[2]d AND first + events > %[3]d",
		table, id, next, fmt.Sprintf(s.CutFingerprints, count), count))
	if err != nil {
		return err
	}
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT first, events FROM %s WHERE owner = %d FOR UPDATE", table, id))
	if err != nil {
		return err
	}
	var committed event.Ranges
	for _, row := range rows {
		var r event.Range
		if r.First, r.Count, err = parsePair(row); err != nil {
			return err
		}
		committed.Add(r)
	}
	var values []string
	for _, gap := range committed.Missing(event.Range{Count: next}) {
		values = append(values, fmt.Sprintf("(%d, %d, %d, %d, %s)", id, gap.First, gap.Count, epoch, s.Now))
	}
	if len(values) == 0 {
		return nil
	}
	return c.Exec(ctx, "INSERT INTO "+table+" (owner, first, events, epoch, committed) VALUES "+strings.Join(values, ", "))
}
