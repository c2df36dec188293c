package mysql

import (
	"context"
	"database/sql"

	"github.com/perigeedb/perigee/sink"
)

// refuse finds the rows for which the server refused a batch with cause. It
// inserts the batch by halves, and those by halves, in a transaction that is
// rolled back: the good rows stay in it, so that two rows with one key are told
// apart. With b bad rows among n that is about 2·b·log(n/b) statements.
func (w *writer) refuse(ctx context.Context, conn *sql.Conn, b *batch, cause error) error {
	if err := w.owned(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, startStatement); err != nil {
		return err
	}
	defer rollBack(ctx, conn)
	var bad []sink.RowError
	if err := w.halve(ctx, conn, b, b.rows, &bad); err != nil {
		return err
	}
	if len(bad) == 0 {
		// It was the ledger that refused, or something has changed meanwhile:
		// read again what is committed before the next attempt.
		w.lose()
		return cause
	}
	return &sink.RowErrors{Rows: bad}
}

// halve inserts rows in one statement, which the server takes or refuses as a
// whole, and goes on with the halves of what it refuses.
func (w *writer) halve(ctx context.Context, conn *sql.Conn, b *batch, rows []int, bad *[]sink.RowError) error {
	b.buf = b.buf[:0]
	n, err := w.fill(b, rows)
	if err == nil && n < len(rows) {
		return w.both(ctx, conn, b, rows, n, bad)
	}
	if err == nil {
		err = send(ctx, conn, b.buf)
	}
	if err == nil || judge(err) != refused {
		return err
	}
	if len(rows) == 1 {
		*bad = append(*bad, sink.RowError{Row: rows[0], Err: explainRow(err, b.columns, rows[0])})
		return nil
	}
	return w.both(ctx, conn, b, rows, len(rows)/2, bad)
}

func (w *writer) both(ctx context.Context, conn *sql.Conn, b *batch, rows []int, n int, bad *[]sink.RowError) error {
	if err := w.halve(ctx, conn, b, rows[:n], bad); err != nil {
		return err
	}
	return w.halve(ctx, conn, b, rows[n:], bad)
}
