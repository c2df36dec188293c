package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"unsafe"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// A partition is the writer's side of a claim. It implements positions.NoteStore.
type partition struct {
	*sqlsink.Claim
	sink *Sink
	plan *plan
}

// A batch is one transaction on its way to the server.
type batch struct {
	statement []byte
	data      []byte
	note      *sqlsink.NoteInsert // nil if there is none
}

// maxSpare is the size above which a batch's memory is not kept.
const maxSpare = 8 << 20

// batches keeps the memory of batches for the next write of any partition.
type batches struct {
	mu    sync.Mutex
	spare []*batch
}

func (s *batches) get() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.spare)
	if n == 0 {
		return new(batch)
	}
	b := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return b
}

func (s *batches) put(b *batch) {
	b.note = nil
	if cap(b.data)+cap(b.statement) > maxSpare {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = append(s.spare, b)
}

// Commit implements positions.Store.
func (p *partition) Commit(ctx context.Context, rows *positions.Rows, ranges []event.Range) error {
	b := p.sink.batches.get()
	defer p.sink.batches.put(b)
	return p.commit(ctx, b, rows, ranges)
}

// CommitNote implements positions.NoteStore.
func (p *partition) CommitNote(ctx context.Context, rows *positions.Rows, ranges []event.Range, note *positions.Note) (err error) {
	b := p.sink.batches.get()
	defer p.sink.batches.put(b)
	if b.note, err = p.NewNoteInsert(note); err != nil {
		return err
	}
	return p.commit(ctx, b, rows, ranges)
}

func (p *partition) commit(ctx context.Context, b *batch, rows *positions.Rows, ranges []event.Range) error {
	c, err := p.sink.pool.get(ctx)
	if err == nil {
		defer p.sink.pool.put(ctx, c)
		err = p.transact(ctx, c, b, rows, ranges)
		if classify(err) == sqlsink.Rejected {
			err = p.findRejected(ctx, c, b, rows, err)
		}
		if classify(err) == sqlsink.Permanent {
			c.hangUp() // its staging table may be out of date
		}
	}
	return p.sink.store.Explain("writing to table "+p.sink.config.Table, err)
}

// transact sends a whole transaction, COMMIT included, before the first of its rows:
// once the server has the rows, it waits for nobody until it has committed. The lock
// by which Evict finds it comes first, that on the owner's row last.
func (p *partition) transact(ctx context.Context, c *conn, b *batch, rows *positions.Rows, ranges []event.Range) error {
	if err := p.plan.createStage(ctx, c); err != nil {
		return err
	}
	to := append(b.statement[:0], "BEGIN;SELECT pg_advisory_xact_lock_shared("...)
	to = append(append(to, p.sink.lockClass(true)...), ',')
	to = append(strconv.AppendUint(to, p.ID, 10), ");"...)
	if len(rows.Index) > 0 {
		if err := b.encode(&p.plan.format, rows.Columns, rows.Index, p.plan.stage != ""); err != nil {
			return err
		}
		to = append(append(to, p.plan.copy...), p.plan.insert...)
	}
	if b.note != nil {
		for b.note.Split(sqlsink.NotePart, sqlsink.NotePart); b.note.More(); {
			to = append(b.note.AppendPart(to), ';')
		}
		to = append(b.note.AppendLast(to, len(ranges) > 0), ';')
	}
	if len(ranges) > 0 {
		to = append(p.AppendRanges(to, ranges), ';')
	}
	b.statement = append(to, "COMMIT"...)
	return c.send(ctx, b, len(rows.Index) > 0)
}

// encode writes the data of rows.
func (b *batch) encode(f *format, columns *event.Columns, rows []int, numbered bool) (err error) {
	b.data, err = f.append(b.data[:0], columns, rows, numbered)
	return err
}

// createStage creates the staging table of a session that lacks it.
func (p *plan) createStage(ctx context.Context, c *conn) error {
	if p.stage == "" || c.staged {
		return nil
	}
	if err := c.Exec(ctx, p.stage); err != nil {
		return fmt.Errorf("creating the staging table: %w", err)
	}
	c.staged = true
	return nil
}

// send runs the statements of a batch, with its data if one of them is a COPY.
func (c *conn) send(ctx context.Context, b *batch, data bool) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	// The driver copies the text into its buffer and keeps nothing of it.
	statement := unsafe.String(unsafe.SliceData(b.statement), len(b.statement))
	if !data {
		return c.PgConn.Exec(ctx, statement).Close()
	}
	rows := &revocable{data: b.data}
	defer rows.revoke()
	_, err := c.CopyFrom(ctx, rows, statement)
	return err
}

const savepoint = "perigee"

// findRejected finds the rows that made the server reject a batch with cause.
func (p *partition) findRejected(ctx context.Context, c *conn, b *batch, rows *positions.Rows, cause error) error {
	rollBack(ctx, c)
	if err := p.CheckOwned(ctx, c); err != nil {
		return err
	}
	if b.note != nil {
		if err := b.note.CheckNext(ctx, c); err != nil {
			return err
		}
	}
	if err := c.Exec(ctx, "BEGIN;SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		return err
	}
	bisection := sqlsink.Bisection{
		Insert: func(ctx context.Context, piece []int) (int, error) {
			return len(piece), p.tryRows(ctx, c, b, rows.Columns, piece)
		},
		IsRejection: func(err error) bool { return classify(err) == sqlsink.Rejected },
		Blame:       blameRow,
		Explain: func(err error, row int) sink.RowError {
			return sqlsink.RejectedRow(err, rows.Columns, row, causeOf)
		},
	}
	rejected, err := bisection.Run(ctx, rows.Index)
	if err != nil {
		return err
	}
	if len(rejected) == 0 {
		return sqlsink.AllAccepted(cause)
	}
	return &sink.RowErrors{Rows: rejected}
}

// tryRows inserts rows in the transaction, all or none.
func (p *partition) tryRows(ctx context.Context, c *conn, b *batch, columns *event.Columns, rows []int) error {
	if err := b.encode(&p.plan.format, columns, rows, p.plan.stage != ""); err != nil {
		return err
	}
	to := append(b.statement[:0], "SAVEPOINT "+savepoint+";"...)
	if p.plan.stage != "" {
		to = append(to, "TRUNCATE "+staging+";"...)
	}
	to = append(append(to, p.plan.copy...), p.plan.insert...)
	b.statement = append(to, "RELEASE "+savepoint...)
	err := c.send(ctx, b, true)
	if classify(err) == sqlsink.Rejected {
		if err := c.Exec(ctx, "ROLLBACK TO "+savepoint); err != nil {
			return err
		}
	}
	return err
}
