//go:build linux && cgo

package sqlworker

import (
	"context"
	"time"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// readTime is effectively no limit: the caller's context ends a Read.
const readTime = 10 * 365 * 24 * time.Hour

// Read returns the rows of trusted SQL. With Options.Threads 1, rows of a file come in file
// order.
func (c *Client) Read(ctx context.Context, sql string) (*Rows, error) {
	return c.askRows(ctx, &protocol.Request{Read: &protocol.Read{SQL: sql}}, readTime, func(*protocol.Writer) error { return nil })
}

func (w *worker) read(ctx context.Context, q *protocol.Read, in *job) error {
	s, err := w.newSession(ctx, w.settings.Memory*3/4)
	if err != nil {
		return err
	}
	defer s.close()
	stmt, err := s.prepare(q.SQL, true)
	if err == nil {
		defer duck.DestroyPrepare(&stmt)
		_, err = s.send(stmt, 0, 0, in)
	}
	if err != nil {
		s.failed = true
		return s.explainError(err, q.SQL)
	}
	return nil
}
