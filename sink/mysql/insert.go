package mysql

import (
	"context"
	"database/sql/driver"
	"strings"
	"unsafe"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/table"
)

const (
	mostPrepared  = 512   // rows of the largest prepared INSERT
	leastPrepared = 16    // fewer go as text
	parameters    = 65535 // that a server takes in one statement

	tooManyPrepared = 1461 // the number with which it says that there are too many statements
)

// insert writes rows and ranges in one transaction. What takes the lock of the
// owner's row goes in one packet with the commit; rows go in packets of their
// own, because a server spends a tenth more on those that share one.
func (b *book) insert(ctx context.Context, s *session, t *batch, ranges []event.Range, way way) error {
	if err := send(ctx, s.conn, append(t.text[:0], startStatement...)); err != nil {
		return err
	}
	for rows := t.rows; len(rows) > 0; {
		n, err := b.insertSome(ctx, s, t, rows, way)
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	t.text = append(b.appendRanges(t.text[:0], ranges, ""), commitStatement...)
	return send(ctx, s.conn, t.text)
}

// insertSome inserts the first n of rows: as arrays, as parameters of a prepared
// statement, which costs the server a third less than text, or as text.
func (b *book) insertSome(ctx context.Context, s *session, t *batch, rows []int, way way) (n int, err error) {
	if way == byArrays {
		if n, err = b.insertArrays(ctx, s, t, rows); n > 0 || err != nil {
			return n, err
		}
	}
	if n = preparedSize(len(rows), len(t.columns.Spec)); n > 0 {
		fits, err := b.bind(s, t, rows[:n])
		if err != nil {
			return 0, err
		}
		stmt, err := b.prepare(ctx, s, n)
		if err != nil && !isNumber(err, tooManyPrepared) {
			return 0, err
		}
		if fits && err == nil {
			return n, s.execute(ctx, stmt)
		}
	}
	t.buf = t.buf[:0]
	if n, err = b.fill(t, rows); err != nil {
		return n, err
	}
	return n, send(ctx, s.conn, t.buf)
}

// preparedSize is the largest power of two that is a size of prepared
// statements and not above rows; 0 when there is none.
func preparedSize(rows, columns int) int {
	n := mostPrepared
	for n > rows || n*columns > parameters {
		n /= 2
	}
	if n < leastPrepared {
		return 0
	}
	return n
}

// prepare returns the statement that inserts n rows.
func (b *book) prepare(ctx context.Context, s *session, n int) (driver.Stmt, error) {
	if stmt := s.prepared[n]; stmt != nil {
		return stmt, nil
	}
	row := "(" + marks(len(b.sink.columns)) + ")"
	text := b.plan.head + strings.Repeat(row+",", n-1) + row + b.plan.tail
	var stmt driver.Stmt
	err := s.conn.Raw(func(c any) (err error) {
		stmt, err = c.(driver.ConnPrepareContext).PrepareContext(ctx, text)
		return err
	})
	s.prepared[n] = stmt
	return stmt, err
}

// marks are the places of n parameters.
func marks(n int) string { return strings.Repeat("?,", n-1) + "?" }

// bind makes parameters of rows. It tells whether they fit into one packet.
func (b *book) bind(s *session, t *batch, rows []int) (fits bool, err error) {
	s.args = s.args[:0]
	size := 0
	t.buf = t.buf[:0] // times are cut from it; where it grows, those already cut keep what was
	for _, row := range rows {
		for c := range t.columns.Spec {
			if err := b.checkValue(t, c, row); err != nil {
				return false, err
			}
			v := &t.columns.Vectors[c]
			value, err := t.value(t.columns.Spec[c].Type, v, row)
			if err != nil {
				return false, &refusal{c, err}
			}
			if text, ok := value.(string); ok {
				size += len(text)
			}
			s.args = append(s.args, driver.NamedValue{Value: value})
		}
	}
	const each = 2 + 9 // bytes of a type, and of a length or a number
	return size+each*len(s.args) < min(b.plan.packet-reserve, largeStatement), nil
}

// value is row r as the driver takes it, valid until the columns or t.buf change.
func (t *batch) value(kind event.Type, v *event.Vector, r int) (driver.Value, error) {
	if v.Null[r] != 0 {
		return nil, nil
	}
	switch kind {
	case event.Bool, event.Int32, event.Int64:
		return v.Ints[r], nil
	case event.Float64:
		return v.Floats[r], nil
	case event.Timestamp:
		if err := table.CheckTime(v.Ints[r]); err != nil {
			return nil, err
		}
		from := len(t.buf)
		t.buf = table.AppendTime(t.buf, v.Ints[r])
		return view(t.buf[from:]), nil
	}
	return view(v.Text(r)), nil
}

// view is text as a string that shares its memory.
func view(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// execute runs a prepared statement with the session's parameters. The driver
// copies them into its packet and keeps nothing of them.
func (s *session) execute(ctx context.Context, stmt driver.Stmt) error {
	err := s.conn.Raw(func(any) error {
		_, err := stmt.(driver.StmtExecContext).ExecContext(ctx, s.args)
		return err
	})
	clear(s.args)
	return err
}
