//go:build linux && cgo

package sqlworker

import (
	"context"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/tableview"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// The answer to a Tail ends once its frames have tailRows rows or tailBytes bytes, so that
// the rows fit into memory. It has at least one frame. One thread reads the frames of an
// answer, which keeps the rows in log order.
const (
	tailRows  = logscan.GroupRows
	tailBytes = 8 << 20
)

// tail answers a Tail.
func (w *worker) tail(ctx context.Context, q *protocol.Tail, in *job) error {
	ctx, stop := protocol.WithTimeLimit(ctx, protocol.TailTime)
	defer stop()
	defer context.AfterFunc(ctx, in.setCloseDeadline)()
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	log, err := w.log.Open(q.From.File, q.Ends)
	if err != nil {
		return err
	}
	frames, next := nextFrames(log.Of(t.ID), q)
	if len(frames) == 0 {
		log.Close()
		return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{Next: next})
	}
	s, err := w.newSession(ctx, min(catalog.DefaultQueryMemory, w.settings.Memory*3/4))
	if err != nil {
		log.Close()
		return err
	}
	defer s.close()
	s.log, s.next = log, next
	sql := "SELECT * FROM main." + sqltext.QuoteName(t.Name)
	if q.Where != "" {
		sql += " WHERE (" + q.Where + "\n)"
	}
	if err := s.sendFrames(t, frames, sql, in); err != nil {
		s.failed = true
		return s.explainError(err, sql)
	}
	return nil
}

func (s *session) sendFrames(t *manifest.Table, frames []*logscan.Frame, sql string, in *job) error {
	if err := s.createView(t, tableview.Selection{Frames: frames}); err != nil {
		return err
	}
	if err := s.conn.Exec("BEGIN TRANSACTION READ ONLY"); err != nil {
		return err
	}
	s.begun = true
	stmt, err := s.prepare(sql, true)
	if err != nil {
		return err
	}
	defer duck.DestroyPrepare(&stmt)
	_, err = s.send(stmt, 0, 0, in)
	return err
}

// nextFrames returns the frames of an answer, all of one schema version, and the position
// after them.
func nextFrames(all []*logscan.Frame, q *protocol.Tail) (frames []*logscan.Frame, next wal.Position) {
	rows, size := 0, 0
	for _, f := range all {
		if f.Position.Compare(q.From) < 0 {
			continue
		}
		rows, size = rows+f.Rows, size+f.Size()
		if len(frames) > 0 && (rows > tailRows || size > tailBytes || f.Schema != frames[0].Schema) {
			return frames, f.Position
		}
		frames = append(frames, f)
	}
	next = q.From
	for _, end := range q.Ends {
		if position := (wal.Position{File: end.Number, Offset: end.End}); position.Compare(next) > 0 {
			next = position
		}
	}
	return frames, next
}
