package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"unsafe"

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
	buf     []byte // statements that are not sent yet
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
	limit := w.limits.packet - reserve
	for i, row := range rows {
		mark := len(b.buf)
		if err := w.appendRow(b, row, i > 0); err != nil {
			return i, err
		}
		if i > 0 && len(b.buf) > min(limit, largeStatement) {
			b.buf = b.buf[:mark]
			return i, nil
		}
		if len(b.buf) > limit {
			return i, &refusal{-1, fmt.Errorf("the row takes %d bytes, and max_allowed_packet of the server is %d",
				len(b.buf)-mark, w.limits.packet)}
		}
	}
	return len(rows), nil
}

// appendRow appends one row to a statement that has some, or begins one.
func (w *writer) appendRow(b *batch, row int, more bool) error {
	if more {
		b.buf = append(b.buf, ',')
	} else {
		b.buf = append(b.buf, w.sink.head...)
	}
	separator := byte('(')
	for c := range b.columns.Spec {
		b.buf = append(b.buf, separator)
		separator = ','
		v, t := &b.columns.Vectors[c], b.columns.Spec[c].Type
		if t == event.Decimal && v.Null[row] == 0 {
			if err := checkScale(v.Text(row), w.limits.scales[c]); err != nil {
				return &refusal{c, err}
			}
		}
		var err error
		if b.buf, err = appendValue(b.buf, t, v, row); err != nil {
			return &refusal{c, err}
		}
	}
	b.buf = append(b.buf, ')')
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

// send sends what is in buf and empties it.
func (b *batch) send(ctx context.Context, conn *sql.Conn) error {
	// The driver copies the text into its packet and keeps nothing of it.
	_, err := conn.ExecContext(ctx, unsafe.String(unsafe.SliceData(b.buf), len(b.buf)))
	b.buf = b.buf[:0]
	return err
}
