//go:build linux && cgo

package sqlworker

import (
	"context"
	"time"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// The answer to a Tail ends once its frames have tailRows rows or tailBytes bytes, so that
// the rows fit into memory. It has at least one frame. One thread reads the frames of an
// answer, which keeps the rows in log order.
const (
	tailRows  = groupRows
	tailBytes = 8 << 20
	tailTime  = 30 * time.Second
)

// Tail returns the next rows of a table, in append order. Position returns where to continue.
func (c *Client) Tail(ctx context.Context, q protocol.Tail) (*Rows, error) {
	return c.askRows(ctx, &protocol.Request{Tail: &q}, tailTime, func(*protocol.Writer) error { return nil })
}

// Position returns the position at which the next Tail continues. It is valid once Next has
// returned false without an error.
func (r *Rows) Position() manifest.Position { return r.outcome.Next }

// tail answers a Tail.
func (w *worker) tail(ctx context.Context, q *protocol.Tail, in *job) error {
	ctx, stop := withTimeLimit(ctx, tailTime)
	defer stop()
	defer context.AfterFunc(ctx, in.setCloseDeadline)()
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	log, err := w.log.open(q.From.File, q.Ends)
	if err != nil {
		return err
	}
	frames, next := nextFrames(log.of(t.ID), q)
	if len(frames) == 0 {
		log.close()
		return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{Next: next})
	}
	s, err := w.newSession(ctx, min(protocol.MemoryDefault, w.settings.Memory*3/4))
	if err != nil {
		log.close()
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

func (s *session) sendFrames(t *manifest.Table, frames []*logFrame, sql string, in *job) error {
	if err := s.createView(t, selection{frames: frames}); err != nil {
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
func nextFrames(all []*logFrame, q *protocol.Tail) (frames []*logFrame, next manifest.Position) {
	rows, size := 0, 0
	for _, f := range all {
		if f.position.Compare(q.From) < 0 {
			continue
		}
		rows, size = rows+f.rows, size+len(f.record)
		if len(frames) > 0 && (rows > tailRows || size > tailBytes || f.schema != frames[0].schema) {
			return frames, f.position
		}
		frames = append(frames, f)
	}
	next = q.From
	for _, end := range q.Ends {
		if position := (manifest.Position{File: end.Number, Offset: end.End}); position.Compare(next) > 0 {
			next = position
		}
	}
	return frames, next
}
