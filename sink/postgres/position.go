package postgres

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/event"
)

// Positions implements sink.PositionStore.
func (s *Sink) Positions(ctx context.Context) (map[string]event.Ranges, error) {
	rows, err := s.ask(ctx, "reading the positions", fmt.Sprintf(`SELECT first, events, 0, NULL::bytea, partition
		FROM %s JOIN %s r ON r.owner = id WHERE %s`, s.config.in(ownersTable), s.config.in(rangesTable), s.where()))
	if err != nil {
		return nil, err
	}
	all := map[string]event.Ranges{}
	for _, row := range rows {
		e, err := readEntry(row)
		if err != nil {
			return nil, s.explain("reading the positions", err)
		}
		ranges := all[string(row[4])]
		ranges.Add(e.Range)
		all[string(row[4])] = ranges
	}
	return all, nil
}

// SetPosition implements sink.PositionStore. It raises the epoch first, whose lock
// keeps everybody else from committing until the ranges are what they should be.
func (s *Sink) SetPosition(ctx context.Context, partition string, next uint64) error {
	_, err := s.ask(ctx, "setting the position of partition "+partition, s.setPosition(partition, next))
	return err
}

// setPosition cuts the ranges at next, and fills what is missing before it.
// What stays keeps its fingerprints.
func (s *Sink) setPosition(partition string, next uint64) string {
	return fmt.Sprintf(`BEGIN;%[1]s;
		CREATE TEMP TABLE perigee_set ON COMMIT DROP AS SELECT id, epoch, %[4]d::numeric AS next FROM %[2]s WHERE %[5]s AND partition = %[6]s;
		DELETE FROM %[3]s r USING perigee_set WHERE owner = id AND first >= next;
		UPDATE %[3]s r SET prints = substring(prints FOR (4 * (next - first))::int), events = next - first
			FROM perigee_set WHERE owner = id AND first + events > next;
		INSERT INTO %[3]s (owner, first, events, epoch, committed)
			SELECT id, gap, until - gap, epoch, clock_timestamp() FROM (
				SELECT id, epoch, least(next, 0) AS gap, coalesce((SELECT min(first) FROM %[3]s WHERE owner = id), next) AS until FROM perigee_set
				UNION ALL
				SELECT id, s.epoch, first + events, coalesce(lead(first) OVER (ORDER BY first), next)
					FROM %[3]s r JOIN perigee_set s ON owner = id) gaps
			WHERE until > gap;
		COMMIT`,
		s.raiseOwner(partition, s.owner+":position"), s.config.in(ownersTable), s.config.in(rangesTable), next, s.where(), quoteText(nameText(partition)))
}
