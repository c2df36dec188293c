package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"

	"github.com/perigeedb/perigee/event"
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
}

// choose sets the rows that come from positions of the missing ranges.
func (b *batch) choose(out *event.Output, missing event.Ranges) {
	b.columns, b.rows = out.Columns, b.rows[:0]
	all := missing.Covers(out.Range.First, out.Range.End())
	for row := range out.Len() {
		if all || missing.Has(out.Position(row)) {
			b.rows = append(b.rows, row)
		}
	}
}

// fill appends a statement that inserts the first n of rows: all of them, unless
// it gets too large. A row that can't be sent at all is a *refusal.
func (w *writer) fill(b *batch, rows []int) (n int, err error) {
	limit := w.plan.packet - reserve - len(w.plan.tail)
	for i, row := range rows {
		mark := len(b.buf)
		if err := w.appendRow(b, row, i > 0); err != nil {
			return i, err
		}
		if i > 0 && len(b.buf) > min(limit, largeStatement) {
			b.buf = append(b.buf[:mark], w.plan.tail...)
			return i, nil
		}
		if len(b.buf) > limit {
			return i, &refusal{-1, fmt.Errorf("the row takes %d bytes, and max_allowed_packet of the server is %d",
				len(b.buf)-mark, w.plan.packet)}
		}
	}
	b.buf = append(b.buf, w.plan.tail...)
	return len(rows), nil
}

// appendRow appends one row to a statement that has some, or begins one.
func (w *writer) appendRow(b *batch, row int, more bool) error {
	if more {
		b.buf = append(b.buf, ',')
	} else {
		b.buf = append(b.buf, w.plan.head...)
	}
	separator := byte('(')
	for c := range b.columns.Spec {
		b.buf = append(b.buf, separator)
		separator = ','
		if err := w.checkValue(b, c, row); err != nil {
			return err
		}
		var err error
		if b.buf, err = appendValue(b.buf, b.columns.Spec[c].Type, &b.columns.Vectors[c], row); err != nil {
			return &refusal{c, err}
		}
	}
	b.buf = append(b.buf, ')')
	return nil
}

// checkValue refuses what the server would change in silence.
func (w *writer) checkValue(b *batch, c, row int) error {
	v := &b.columns.Vectors[c]
	if b.columns.Spec[c].Type != event.Decimal || v.Null[row] != 0 {
		return nil
	}
	if err := checkScale(v.Text(row), w.plan.scales[c]); err != nil {
		return &refusal{c, err}
	}
	return nil
}

// checkScale refuses a number with more digits after the point than its column
// keeps: the server would round it even in strict mode.
func checkScale(number []byte, scale int) error {
	point := bytes.IndexByte(number, '.')
	if point < 0 || scale < 0 || bytes.ContainsAny(number, "eE") {
		return nil
	}
	if digits := len(bytes.TrimRight(number[point+1:], "0")); digits > scale {
		return fmt.Errorf("%d digits after the point, and the column keeps %d", digits, scale)
	}
	return nil
}

// send carries out statements. The driver copies their text into its packet and
// keeps nothing of it.
func send(ctx context.Context, conn *sql.Conn, text []byte) error {
	_, err := conn.ExecContext(ctx, view(text))
	return err
}
