package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/perigeedb/perigee/event"
)

// Positions implements sink.PositionStore.
func (s *Sink) Positions(ctx context.Context) (map[string]event.Ranges, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT o.`partition`, r.first, r.events FROM perigee_owners o JOIN perigee_ranges r ON r.owner = o.id "+
		"WHERE o.pipeline = ? AND o.target = ?", s.pipeline, s.config.Table)
	if isNumber(err, noSuchTable) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain("reading the positions", err)
	}
	defer rows.Close()
	all := map[string]event.Ranges{}
	for rows.Next() {
		var partition string
		var r event.Range
		if err := rows.Scan(&partition, &r.First, &r.Count); err != nil {
			return nil, s.explain("reading the positions", err)
		}
		ranges := all[partition]
		ranges.Add(r)
		all[partition] = ranges
	}
	return all, s.explain("reading the positions", rows.Err())
}

const noSuchTable = 1146

// SetPosition implements sink.PositionStore. It raises the epoch first, whose lock
// keeps everybody else from committing until the ranges are what they should be.
func (s *Sink) SetPosition(ctx context.Context, partition string, next uint64) error {
	err := s.prepareOnce(ctx)
	if err == nil {
		err = s.setPosition(ctx, partition, next)
	}
	return s.explain("setting the position of partition "+partition, err)
}

func (s *Sink) setPosition(ctx context.Context, partition string, next uint64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, raiseOwner, s.pipeline, s.config.Table, partition, s.owner+":position"); err != nil {
		return err
	}
	var id, epoch uint64
	err = tx.QueryRowContext(ctx, "SELECT id, epoch FROM perigee_owners WHERE pipeline = ? AND target = ? AND `partition` = ? FOR UPDATE",
		s.pipeline, s.config.Table, partition).Scan(&id, &epoch)
	if err != nil {
		return err
	}
	if err := cutRanges(ctx, tx, id, next); err != nil {
		return err
	}
	if err := fillRanges(ctx, tx, id, epoch, next); err != nil {
		return err
	}
	return tx.Commit()
}

// cutRanges forgets what is at next and past it. What stays keeps its fingerprints.
func cutRanges(ctx context.Context, tx *sql.Tx, id, next uint64) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM perigee_ranges WHERE owner = ? AND first >= ?", id, next)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE perigee_ranges SET prints = LEFT(prints, 4 * (? - first)), events = ? - first
		WHERE owner = ? AND first + events > ?`, next, next, id, next)
	return err
}

// fillRanges takes all before next as had.
func fillRanges(ctx context.Context, tx *sql.Tx, id, epoch, next uint64) (err error) {
	rows, err := tx.QueryContext(ctx, "SELECT first, events FROM perigee_ranges WHERE owner = ? FOR UPDATE", id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var have event.Ranges
	for rows.Next() {
		var r event.Range
		if err := rows.Scan(&r.First, &r.Count); err != nil {
			return err
		}
		have.Add(r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, gap := range have.Missing(event.Range{Count: next}) {
		_, err := tx.ExecContext(ctx, "INSERT INTO perigee_ranges (owner, first, events, epoch, committed) VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6))",
			id, gap.First, gap.Count, epoch)
		if err != nil {
			return err
		}
	}
	return nil
}
