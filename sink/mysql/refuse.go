package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/perigeedb/perigee/sink"
)

// refuse finds the rows for which the server refused a batch with cause. It
// inserts the batch by halves, and those by halves, in a transaction that is
// rolled back: the good rows stay in it, so that two rows with one key are told
// apart. With b bad rows among n that is about 2·b·log(n/b) statements.
func (b *book) refuse(ctx context.Context, conn *sql.Conn, t *batch, cause error) error {
	if err := b.owned(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, startStatement); err != nil {
		return err
	}
	defer rollBack(ctx, conn)
	var bad []sink.RowError
	if err := b.halve(ctx, conn, t, t.rows, &bad); err != nil {
		return err
	}
	if len(bad) == 0 {
		if b.plan.way == byArrays {
			b.went(cause, nil)
		}
		// It was the ledger that refused, or something has changed meanwhile: the
		// writer reads again what is committed, for it cannot make anything of this.
		return fmt.Errorf("refused as a whole: %s", cause)
	}
	return &sink.RowErrors{Rows: bad}
}

// halve inserts rows in one statement, which the server takes or refuses as a
// whole, and goes on with the halves of what it refuses.
func (b *book) halve(ctx context.Context, conn *sql.Conn, t *batch, rows []int, bad *[]sink.RowError) error {
	t.buf = t.buf[:0]
	n, err := b.fill(t, rows)
	if err == nil && n < len(rows) {
		return b.both(ctx, conn, t, rows, n, bad)
	}
	if err == nil {
		err = send(ctx, conn, t.buf)
	}
	if err == nil || judge(err) != refused {
		return err
	}
	if len(rows) == 1 {
		*bad = append(*bad, sink.RowError{Row: rows[0], Err: explainRow(err, t.columns, rows[0])})
		return nil
	}
	return b.both(ctx, conn, t, rows, len(rows)/2, bad)
}

func (b *book) both(ctx context.Context, conn *sql.Conn, t *batch, rows []int, n int, bad *[]sink.RowError) error {
	if err := b.halve(ctx, conn, t, rows[:n], bad); err != nil {
		return err
	}
	return b.halve(ctx, conn, t, rows[n:], bad)
}
