package mysql

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// parameterKinds are what our columns are sent as. A time for a column of text is
// written here, because the server would leave its trailing zeros out.
func (s *Sink) parameterKinds(columns []sqlsink.TableColumn) []wire.Kind {
	kinds := make([]wire.Kind, len(s.columns))
	for i, c := range s.columns {
		kinds[i] = wire.Text
		switch c.Type {
		case event.Bool, event.Int32:
			kinds[i] = wire.Int32
		case event.Int64:
			kinds[i] = wire.Int64
		case event.Float64:
			kinds[i] = wire.Float64
		case event.Timestamp:
			if !slices.Contains(texts, s.target.Find(columns, c.Name).Type) {
				kinds[i] = wire.Datetime
			}
		}
	}
	return kinds
}

// formats are those of a batch's rows. They share a calendar, so that they are for
// one goroutine at a time.
type formats struct {
	bulk    sqlsink.Format // parameters in arrays
	values  sqlsink.Format // parameters without their nulls
	literal sqlsink.Format // of SQL
}

func newFormats(columns []event.Column, p *plan) formats {
	var f formats
	calendar := new(wire.Calendar)
	for i, c := range columns {
		parameter, literal := encodeText, appendLiteral(c.Type)
		switch p.kinds[i] {
		case wire.Int32:
			parameter = encodeInt32
		case wire.Int64:
			parameter = encodeInt64
		case wire.Float64:
			parameter = encodeFloat64
		case wire.Datetime:
			parameter = encodeDatetime(calendar)
		default:
			if c.Type == event.Timestamp {
				parameter = encodeTimeText
			}
		}
		if c.Type == event.Decimal {
			parameter, literal = sqlsink.Scaled(parameter, p.scales[i]), sqlsink.Scaled(literal, p.scales[i])
		}
		f.values.Encoders = append(f.values.Encoders, parameter)
		f.literal.Encoders = append(f.literal.Encoders, literal)
	}
	f.bulk = sqlsink.Format{Encoders: f.values.Encoders, Value: string(rune(wire.ValueFollows)), Null: string(rune(wire.ValueIsNull))}
	f.literal.Separator, f.literal.Null = ",", "NULL"
	return f
}

func encodeInt32(to []byte, v *event.Vector, row int) ([]byte, error) {
	return binary.LittleEndian.AppendUint32(to, uint32(v.Ints[row])), nil
}

func encodeInt64(to []byte, v *event.Vector, row int) ([]byte, error) {
	return binary.LittleEndian.AppendUint64(to, uint64(v.Ints[row])), nil
}

func encodeFloat64(to []byte, v *event.Vector, row int) ([]byte, error) {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(v.Floats[row])), nil
}

func encodeDatetime(calendar *wire.Calendar) sqlsink.Encoder {
	return func(to []byte, v *event.Vector, row int) ([]byte, error) {
		if err := sqlsink.CheckTime(v.Ints[row]); err != nil {
			return to, err
		}
		return calendar.AppendDatetime(to, v.Ints[row]), nil
	}
}

func encodeTimeText(to []byte, v *event.Vector, row int) ([]byte, error) {
	if err := sqlsink.CheckTime(v.Ints[row]); err != nil {
		return to, err
	}
	return sqlsink.AppendTime(wire.AppendLength(to, sqlsink.TimeLength), v.Ints[row]), nil
}

func encodeText(to []byte, v *event.Vector, row int) ([]byte, error) {
	text := v.Text(row)
	return append(wire.AppendLength(to, len(text)), text...), nil
}

// appendLiteral appends values of a type as literals of SQL. They follow the escape
// rules of a session without NO_BACKSLASH_ESCAPES: see settings.
func appendLiteral(t event.Type) sqlsink.Encoder {
	switch t {
	case event.Bool, event.Int32, event.Int64:
		return func(to []byte, v *event.Vector, row int) ([]byte, error) {
			return strconv.AppendInt(to, v.Ints[row], 10), nil
		}
	case event.Float64:
		// The exponent makes it a double for the server; without it, it would be a
		// decimal number first.
		return func(to []byte, v *event.Vector, row int) ([]byte, error) {
			return strconv.AppendFloat(to, v.Floats[row], 'e', -1, 64), nil
		}
	case event.Timestamp:
		return func(to []byte, v *event.Vector, row int) ([]byte, error) {
			if err := sqlsink.CheckTime(v.Ints[row]); err != nil {
				return to, err
			}
			return append(sqlsink.AppendTime(append(to, '\''), v.Ints[row]), '\''), nil
		}
	}
	return func(to []byte, v *event.Vector, row int) ([]byte, error) { return appendText(to, v.Text(row)), nil }
}

// appendText appends text in quotes. Decimal numbers go this way too: as numbers,
// those with an exponent would pass through a double.
func appendText(b, text []byte) []byte {
	b = append(b, '\'')
	plain := 0 // text[plain:i] needs no escape
	for i, c := range text {
		if c > '\\' || c != '\'' && c != '\\' && c != 0 {
			continue
		}
		b = append(b, text[plain:i]...)
		if plain = i + 1; c == 0 {
			c = '0'
		}
		b = append(b, '\\', c)
	}
	b = append(b, text[plain:]...)
	return append(b, '\'')
}
