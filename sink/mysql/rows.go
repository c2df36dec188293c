package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/table"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// largeStatement is the size at which a statement is sent and the next begun.
// More rows in one gain nothing any more.
const largeStatement = 4 << 20

// reserve keeps a packet below the server's limit, which counts its header too.
const reserve = 1 << 10

// A batch is one output on its way to the server.
type batch struct {
	columns *event.Columns
	rows    []int  // of the columns, those that are to be written
	buf     []byte // the rows as a statement has them, or values of parameters
	text    []byte // statements without rows
	plain   []bool // of the columns, those whose text needs no escape in a load

	calendar wire.Calendar
}

// fill appends a statement that inserts the first n of rows: all of them, unless
// it gets too large. A row that can't be sent at all is a *refusal.
func (b *book) fill(t *batch, rows []int) (n int, err error) {
	n, err = b.gather(t, rows, b.plan.packet-reserve-len(b.plan.tail), b.appendRow)
	t.buf = append(t.buf, b.plan.tail...)
	return n, err
}

// gather appends the first n of rows: as many as go into a packet of limit bytes
// and into a large statement.
func (b *book) gather(t *batch, rows []int, limit int, appendRow func(t *batch, row int, more bool) error) (n int, err error) {
	for i, row := range rows {
		mark := len(t.buf)
		if err := appendRow(t, row, i > 0); err != nil {
			return i, err
		}
		if i > 0 && len(t.buf) > min(limit, largeStatement) {
			t.buf = t.buf[:mark]
			return i, nil
		}
		if len(t.buf) > limit {
			return i, &refusal{-1, fmt.Errorf("the row takes %d bytes, and max_allowed_packet of the server is %d",
				len(t.buf)-mark, b.plan.packet)}
		}
	}
	return len(rows), nil
}

// appendRow appends one row to a statement that has some, or begins one.
func (b *book) appendRow(t *batch, row int, more bool) error {
	if more {
		t.buf = append(t.buf, ',')
	} else {
		t.buf = append(t.buf, b.plan.head...)
	}
	separator := byte('(')
	for c := range t.columns.Spec {
		t.buf = append(t.buf, separator)
		separator = ','
		if err := b.checkValue(t, c, row); err != nil {
			return err
		}
		var err error
		if t.buf, err = appendValue(t.buf, t.columns.Spec[c].Type, &t.columns.Vectors[c], row); err != nil {
			return &refusal{c, err}
		}
	}
	t.buf = append(t.buf, ')')
	return nil
}

// checkValue refuses what the server would change in silence. It is so small
// that it costs other types no call.
func (b *book) checkValue(t *batch, c, row int) error {
	if t.columns.Spec[c].Type != event.Decimal {
		return nil
	}
	return b.checkDecimal(t, c, row)
}

func (b *book) checkDecimal(t *batch, c, row int) error {
	v := &t.columns.Vectors[c]
	if v.Null[row] != 0 {
		return nil
	}
	if err := table.CheckScale(v.Text(row), b.plan.scales[c]); err != nil {
		return &refusal{c, err}
	}
	return nil
}

// send carries out statements. The driver copies their text into its packet and
// keeps nothing of it.
func send(ctx context.Context, conn *sql.Conn, text []byte) error {
	_, err := conn.ExecContext(ctx, view(text))
	return err
}
