package eventservice

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A RowQuery selects rows of a table: all, the first ones, or the last ones.
type RowQuery struct {
	Table *catalog.Table
	First uint64        // maximum number of rows; 0 is no limit
	Last  uint64        // number of last rows by the table's time; excludes First
	Time  time.Duration // time limit
}

// WriteRows writes rows of a table in a data folder as one JSON object per line, the last ones
// oldest first.
func WriteRows(ctx context.Context, data string, q RowQuery, out io.Writer) error {
	sql, err := q.sql()
	if err != nil {
		return err
	}
	return Query(ctx, data, Request{SQL: sql, Format: "ndjson", Time: q.Time}, out)
}

func (q *RowQuery) sql() (string, error) {
	sql := "SELECT * FROM " + sqltext.QuoteName(q.Table.Name)
	switch {
	case q.Last > 0 && q.Table.Time == "":
		return "", event.WithHint(fmt.Errorf("table %s has no time column, so no rows are its last", q.Table.Name), "use --events N")
	case q.Last > 0:
		by := sqltext.QuoteName(q.Table.Time)
		sql = fmt.Sprintf("SELECT * FROM (%s ORDER BY %s DESC LIMIT %d) ORDER BY %s", sql, by, q.Last, by)
	case q.First > 0:
		sql += fmt.Sprintf(" LIMIT %d", q.First)
	}
	return sql, nil
}
