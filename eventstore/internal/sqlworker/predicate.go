//go:build linux && cgo

package sqlworker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/tableview"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// checkPredicate returns an error unless the predicate is valid for a delete: one
// deterministic expression over the columns of a table.
func (w *worker) checkPredicate(ctx context.Context, q *protocol.Check, in *job) error {
	ctx, stop := protocol.WithTimeLimit(ctx, 10*time.Second)
	defer stop()
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	s, err := w.newSession(ctx, catalog.DefaultQueryMemory)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.createView(t, tableview.Selection{}); err != nil {
		return err
	}
	if err := s.checkPredicate(t, q.Predicate); err != nil {
		s.failed = true
		return err
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

func (s *session) checkPredicate(t *manifest.Table, predicate string) error {
	begin := "SELECT 1 FROM " + sqltext.QuoteName(t.Name) + " WHERE "
	sql := begin + predicate
	parsed, err := statement.Parse(s.conn, sql)
	if err != nil {
		return predicateError(begin, sql, err)
	}
	if parsed == nil {
		return predicateError(begin, sql, s.conn.Exec(sql))
	}
	if err := parsed.CheckOffsets([]*manifest.Table{t}, nil); err != nil {
		return predicateError(begin, sql, err)
	}
	if err := parsed.CheckPredicate(t.Name); err != nil {
		return err
	}
	if _, err := s.conn.Run(sql); err != nil {
		return predicateError(begin, sql, err)
	}
	described, err := s.conn.Run("SELECT column_type FROM (DESCRIBE SELECT (" + predicate + "\n) FROM main." + sqltext.QuoteName(t.Name) + ")")
	if err == nil && described[0][0] != "BOOLEAN" {
		return &event.Fault{Message: fmt.Sprintf("the predicate is %v, not BOOLEAN", described[0][0]), Hint: "compare the column with a value"}
	}
	return duckdb.ExplainError(err, "")
}

// predicateError converts positions in the whole statement to positions in the predicate.
func predicateError(begin, sql string, err error) error {
	if err == nil {
		return nil
	}
	err = duckdb.ExplainError(err, sql)
	if q, ok := errors.AsType[*event.Fault](err); ok && q.Line == 1 {
		q.Column = max(q.Column-len(begin), 1)
	}
	return err
}
