//go:build linux && cgo

package sqlworker

import (
	"context"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

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
