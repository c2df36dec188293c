package mysql

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

const (
	// largeStatement is the size at which a statement is sent and the next one begun.
	// More rows in one statement gain nothing.
	largeStatement = 4 << 20

	// reserve keeps a packet below the server's limit, which counts its header too.
	reserve = 1 << 10

	maxPrepared   = 512   // rows of the largest prepared INSERT
	minPrepared   = 16    // fewer rows are sent as text
	maxParameters = 65535 // that a server accepts in one statement
)

// A partition is the writer's side of a claim: its connections and the memory of its
// batches. It implements positions.NoteStore.
type partition struct {
	*sqlsink.Claim
	sink *Sink
	plan plan

	mu              sync.Mutex
	sessions        []*session // idle
	slots           [slots]bool
	closed          bool
	freeBatches     []*batch
	bulkDisabled    bool // the server does not accept what the plan says
	wrongRejections int  // in a row
}

// A batch is one output on its way to the server.
type batch struct {
	columns *event.Columns
	rows    []int // of the columns, those to write
	ranges  []event.Range
	note    *sqlsink.NoteInsert // nil if there is none
	buf     []byte              // a statement with rows
	text    []byte              // a statement without rows
	formats formats
}

func (p *partition) newBatch(rows *positions.Rows, ranges []event.Range) *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b *batch
	if n := len(p.freeBatches); n > 0 {
		b, p.freeBatches = p.freeBatches[n-1], p.freeBatches[:n-1]
	} else {
		b = &batch{formats: newFormats(p.sink.columns, &p.plan)}
	}
	b.columns, b.rows, b.ranges = rows.Columns, rows.Index, ranges
	return b
}

// recycle keeps a batch's memory for the next write, unless it is huge.
func (p *partition) recycle(b *batch) {
	b.columns, b.rows, b.ranges, b.note = nil, nil, nil, nil
	if cap(b.buf) > 2*largeStatement || cap(b.text) > 2*largeStatement {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeBatches = append(p.freeBatches, b)
}

// Renew implements positions.Store. Of the writer's own connections, those it has
// lost may still hold locks; the others it closes, so that all can be ended.
func (p *partition) Renew(ctx context.Context) ([]positions.Entry, error) {
	p.closeSessions()
	return p.Claim.Renew(ctx)
}

// Commit implements positions.Store.
func (p *partition) Commit(ctx context.Context, rows *positions.Rows, ranges []event.Range) error {
	b := p.newBatch(rows, ranges)
	defer p.recycle(b)
	return p.commit(ctx, b)
}

// CommitNote implements positions.NoteStore.
func (p *partition) CommitNote(ctx context.Context, rows *positions.Rows, ranges []event.Range, note *positions.Note) (err error) {
	b := p.newBatch(rows, ranges)
	defer p.recycle(b)
	if b.note, err = p.NewNoteInsert(note); err != nil {
		return err
	}
	return p.commit(ctx, b)
}

func (p *partition) commit(ctx context.Context, b *batch) error {
	return p.sink.store.Explain("writing to table "+p.sink.config.Table, p.tryCommit(ctx, b))
}

func (p *partition) tryCommit(ctx context.Context, b *batch) error {
	s, err := p.session(ctx)
	if err != nil {
		return err
	}
	method := p.method(b)
	err = p.transact(ctx, s, b, method)
	if method == Bulk && isNumber(err, noBulk...) {
		p.bulkRejected(err)
		rollBack(ctx, s.conn)
		method = Rows
		err = p.transact(ctx, s, b, method)
	}
	if err == nil {
		if method == Bulk {
			p.bulkAccepted()
		}
		p.release(s)
		return nil
	}
	outcome := classify(err)
	if outcome == sqlsink.Unknown {
		p.discard(s)
		return err
	}
	defer p.release(s)
	rollBack(ctx, s.conn)
	if outcome == sqlsink.Rejected {
		err = p.findRejected(ctx, s, b, err)
	}
	return err
}

const startTransaction = "START TRANSACTION"

// transact writes rows, note and ranges in one transaction. The locks on the rows of the unit and
// the owner go into one packet with the commit; rows go into packets of their own, because a
// server spends a tenth more on those that share one.
func (p *partition) transact(ctx context.Context, s *session, b *batch, method Method) error {
	if err := s.conn.send(ctx, append(b.text[:0], startTransaction...)); err != nil {
		return err
	}
	if err := p.insertRows(ctx, s, b, b.rows, method); err != nil {
		return err
	}
	b.text = b.text[:0]
	if len(b.ranges) > 0 {
		b.text = append(p.AppendRanges(b.text, b.ranges), ';')
	}
	if b.note != nil {
		if err := p.insertNote(ctx, s, b); err != nil {
			return err
		}
	}
	b.text = append(b.text, "COMMIT"...)
	return s.conn.send(ctx, b.text)
}

// noteOverhead is more than the statements about a note take without its data.
const noteOverhead = 1 << 10

// insertNote inserts the parts of a note, but for the last one, which goes behind the ranges.
// Escapes may double the bytes of a part.
func (p *partition) insertNote(ctx context.Context, s *session, b *batch) error {
	room := p.plan.packet - reserve - noteOverhead
	size := min(room/2, sqlsink.NotePart)
	if size < 1 {
		return &event.PermanentError{
			Err:  fmt.Errorf("max_allowed_packet of the server is %d, too little for a note", p.plan.packet),
			Hint: "set max_allowed_packet to 16M or more",
		}
	}
	b.note.Split(size, min(max(0, room-len(b.text))/2, sqlsink.NotePart))
	for b.note.More() {
		b.buf = b.note.AppendPart(b.buf[:0])
		if err := s.conn.send(ctx, b.buf); err != nil {
			return err
		}
	}
	b.text = append(b.note.AppendLast(b.text, len(b.ranges) > 0), ';')
	return nil
}

func (p *partition) insertRows(ctx context.Context, s *session, b *batch, rows []int, method Method) error {
	for len(rows) > 0 {
		n, err := p.insertSome(ctx, s, b, rows, method)
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertSome inserts the first n of rows: by arrays of parameters, by a prepared
// statement, which costs the server a third less than text, or as text.
func (p *partition) insertSome(ctx context.Context, s *session, b *batch, rows []int, method Method) (n int, err error) {
	if method == Bulk {
		n, err = p.insertBulk(ctx, s, b, rows)
	}
	if n == 0 && err == nil {
		n, err = p.insertPrepared(ctx, s, b, rows)
	}
	if n == 0 && err == nil {
		n, err = p.insertText(ctx, s, b, rows)
	}
	return n, err
}

// insertBulk inserts the first n of rows as arrays of parameters: the server parses
// no text and runs one statement. It inserts none if the server has no room for the
// statement, or if the first row is too long for the only packet.
func (p *partition) insertBulk(ctx context.Context, s *session, b *batch, rows []int) (n int, err error) {
	if s.bulk == nil {
		statement, err := s.prepare(ctx, p.plan.insert(1), p.plan.kinds, 1)
		if err != nil || statement == nil {
			return 0, err
		}
		s.bulk = statement
	}
	b.buf = s.bulk.BeginBulk(b.buf[:0])
	n, err = p.gather(b, rows, p.plan.packet-reserve, &b.formats.bulk, "", "")
	if err != nil {
		return 0, err
	}
	if len(b.buf) > wire.MaxPacket {
		return 0, nil
	}
	return n, s.wire.ExecuteRaw(ctx, b.buf)
}

// insertPrepared inserts the first n of rows as parameters of a statement for as many.
// It inserts none if there are few, if the server has no room for the statement, or
// if the rows do not fit into a packet.
func (p *partition) insertPrepared(ctx context.Context, s *session, b *batch, rows []int) (n int, err error) {
	n = preparedSize(len(rows), len(p.plan.kinds))
	if n == 0 {
		return 0, nil
	}
	statement := s.prepared[n]
	if statement == nil {
		if statement, err = s.prepare(ctx, p.plan.insert(n), p.plan.kinds, n); err != nil || statement == nil {
			return 0, err
		}
		s.prepared[n] = statement
	}
	vectors := b.columns.Vectors
	b.buf = statement.BeginRows(b.buf[:0], func(row, column int) bool { return vectors[column].Null[rows[row]] != 0 })
	for _, row := range rows[:n] {
		if b.buf, err = b.formats.values.AppendRow(b.buf, b.columns, row); err != nil {
			return 0, err
		}
		if len(b.buf) > min(p.plan.packet-reserve, largeStatement) {
			return 0, nil
		}
	}
	return n, s.wire.ExecuteRaw(ctx, b.buf)
}

// preparedSize is the largest power of two that is a size of prepared statements and
// not above rows; 0 if there is none.
func preparedSize(rows, columns int) int {
	n := maxPrepared
	for n > rows || n*columns > maxParameters {
		n /= 2
	}
	if n < minPrepared {
		return 0
	}
	return n
}

// insert is the text of a prepared statement for n rows.
func (p *plan) insert(n int) string {
	row := "(" + strings.Repeat("?,", len(p.kinds)-1) + "?)"
	return p.head + strings.Repeat(row+",", n-1) + row + p.tail
}

// insertText inserts the first n of rows as text. A row that cannot be sent at all is
// a *sqlsink.Misfit.
func (p *partition) insertText(ctx context.Context, s *session, b *batch, rows []int) (n int, err error) {
	b.buf = append(b.buf[:0], p.plan.head...)
	n, err = p.gather(b, rows, p.plan.packet-reserve-len(p.plan.tail), &b.formats.literal, "(", "),")
	if err != nil {
		return n, err
	}
	b.buf = append(b.buf[:len(b.buf)-1], p.plan.tail...) // without the last comma
	return n, s.conn.send(ctx, b.buf)
}

// gather appends the first n of rows, each between open and end: as many as fit into a
// packet of limit bytes and into a large statement.
func (p *partition) gather(b *batch, rows []int, limit int, format *sqlsink.Format, open, end string) (n int, err error) {
	for i, row := range rows {
		mark := len(b.buf)
		if b.buf, err = format.AppendRow(append(b.buf, open...), b.columns, row); err != nil {
			return i, err
		}
		b.buf = append(b.buf, end...)
		if i > 0 && len(b.buf) > min(limit, largeStatement) {
			b.buf = b.buf[:mark]
			return i, nil
		}
		if len(b.buf) > limit {
			return i, &sqlsink.Misfit{Row: row, Column: -1, Err: fmt.Errorf("the row takes %d bytes, and max_allowed_packet of the server is %d",
				len(b.buf)-mark, p.plan.packet)}
		}
	}
	return len(rows), nil
}

// findRejected finds the rows that made the server reject a batch with cause.
func (p *partition) findRejected(ctx context.Context, s *session, b *batch, cause error) error {
	if err := p.CheckOwned(ctx, s.conn); err != nil {
		return err
	}
	if b.note != nil {
		if err := b.note.CheckNext(ctx, s.conn); err != nil {
			return err
		}
	}
	if err := s.conn.Exec(ctx, startTransaction); err != nil {
		return err
	}
	defer rollBack(ctx, s.conn)
	bisection := sqlsink.Bisection{
		Insert:      func(ctx context.Context, rows []int) (int, error) { return p.insertText(ctx, s, b, rows) },
		IsRejection: func(err error) bool { return classify(err) == sqlsink.Rejected },
		Explain: func(err error, row int) sink.RowError {
			return sqlsink.RejectedRow(err, b.columns, row, func(err error) sqlsink.Cause { return causeOf(err, b.columns.Spec) })
		},
	}
	rejected, err := bisection.Run(ctx, b.rows)
	if err != nil {
		return err
	}
	if len(rejected) == 0 {
		if p.plan.method == Bulk {
			p.bulkRejected(cause)
		}
		return sqlsink.AllAccepted(cause)
	}
	return &sink.RowErrors{Rows: rejected}
}
