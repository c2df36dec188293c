package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// IsCommitted implements positions.Store.
func (b *book) IsCommitted(ctx context.Context, r event.Range) (there bool, err error) {
	err = b.sink.db.QueryRowContext(ctx, `SELECT COALESCE((SELECT first + events >= ? FROM perigee_ranges
			WHERE owner = o.id AND first <= ? ORDER BY first DESC LIMIT 1), FALSE)
		FROM perigee_owners AS o WHERE id = ? AND epoch = ? AND owner = ?`,
		r.End(), r.First, b.id, b.epoch, b.token).Scan(&there)
	if errors.Is(err, sql.ErrNoRows) {
		err = sink.ErrFenced
	}
	return there, err
}
