package e2e

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/perigeedb/perigee/internal/audit"
)

// Audit audits a run of the email example over generated events: it reads the ids back from
// the table and from the dead letters in the engines' data folders.
func Audit(ctx context.Context, db *sql.DB, table string, folders []string, seed, events uint64) (audit.Report, error) {
	ledger := audit.New(events)
	rows, err := db.QueryContext(ctx, "SELECT id FROM "+table)
	if err != nil {
		return audit.Report{}, fmt.Errorf("read the ids back: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return audit.Report{}, fmt.Errorf("read the ids back: %w", err)
		}
		ledger.AddRow(id)
	}
	if err := rows.Err(); err != nil {
		return audit.Report{}, fmt.Errorf("read the ids back: %w", err)
	}
	if err := ledger.AddDeadLetters(folders...); err != nil {
		return audit.Report{}, err
	}
	return ledger.Report(audit.DroppedByEmail(seed)), nil
}
