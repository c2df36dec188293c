package mysql

import (
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// appendValue appends the SQL literal of row r. The escape rules are those of a
// session without NO_BACKSLASH_ESCAPES, which config.go sets.
func appendValue(b []byte, t event.Type, v *event.Vector, r int) ([]byte, error) {
	if v.Null[r] != 0 {
		return append(b, "NULL"...), nil
	}
	switch t {
	case event.Bool, event.Int32, event.Int64:
		return strconv.AppendInt(b, v.Ints[r], 10), nil
	case event.Float64:
		// The exponent makes it a double for the server; without, it would be
		// a decimal number first.
		return strconv.AppendFloat(b, v.Floats[r], 'e', -1, 64), nil
	case event.Timestamp:
		if err := table.CheckTime(v.Ints[r]); err != nil {
			return b, err
		}
		return append(table.AppendTime(append(b, '\''), v.Ints[r]), '\''), nil
	}
	return appendText(b, v.Text(r)), nil
}

// appendText appends text in quotes. Decimal numbers go this way too: as
// numbers, those with an exponent would pass through a double.
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
