package mysql

import (
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/table"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// insertArrays inserts the first n of rows as arrays of parameters, for which
// the server reads no text and runs one statement. It inserts none where the
// server has no room for the statement, or the first row is too long for the
// only packet that there is.
func (b *book) insertArrays(ctx context.Context, s *session, t *batch, rows []int) (n int, err error) {
	if s.arrays == nil {
		text := b.plan.head + "(" + marks(len(b.plan.kinds)) + ")" + b.plan.tail
		prepared, err := s.wire.PrepareArrays(ctx, text, b.plan.kinds)
		if isNumber(err, tooManyPrepared) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		s.arrays = &prepared
	}
	t.buf = s.arrays.Begin(t.buf[:0])
	if n, err = b.gather(t, rows, b.plan.packet-reserve, b.appendArrays); err != nil {
		return n, err
	}
	if len(t.buf) > wire.LongestPacket {
		return 0, nil
	}
	return n, s.wire.ExecuteArrays(ctx, t.buf)
}

// kindsOf are what the columns are sent as. A time that becomes text is spelled
// here, because the server leaves its zeroes out.
func kindsOf(columns []event.Column, present []found) []wire.Kind {
	kinds := make([]wire.Kind, len(columns))
	for i, c := range columns {
		kinds[i] = wire.Text
		switch c.Type {
		case event.Bool, event.Int32:
			kinds[i] = wire.Int32
		case event.Int64:
			kinds[i] = wire.Int64
		case event.Float64:
			kinds[i] = wire.Float64
		case event.Timestamp:
			if !slices.Contains(texts, find(present, c.Name).kind) {
				kinds[i] = wire.Datetime
			}
		}
	}
	return kinds
}

// appendArrays appends one row to a statement with arrays.
func (b *book) appendArrays(t *batch, row int, _ bool) error {
	buf := t.buf
	for c := range t.columns.Spec {
		v := &t.columns.Vectors[c]
		if v.Null[row] != 0 {
			buf = append(buf, wire.Null)
			continue
		}
		buf = append(buf, wire.Given)
		switch t.columns.Spec[c].Type {
		case event.Bool, event.Int32:
			buf = binary.LittleEndian.AppendUint32(buf, uint32(v.Ints[row]))
		case event.Int64:
			buf = binary.LittleEndian.AppendUint64(buf, uint64(v.Ints[row]))
		case event.Float64:
			buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(v.Floats[row]))
		case event.Timestamp:
			if err := table.CheckTime(v.Ints[row]); err != nil {
				return &refusal{c, err}
			}
			if b.plan.kinds[c] == wire.Datetime {
				buf = t.calendar.AppendDatetime(buf, v.Ints[row])
			} else {
				buf = table.AppendTime(wire.AppendLength(buf, table.TimeLength), v.Ints[row])
			}
		default:
			if err := b.checkValue(t, c, row); err != nil {
				return err
			}
			text := v.Text(row)
			buf = append(wire.AppendLength(buf, len(text)), text...)
		}
	}
	t.buf = buf
	return nil
}
