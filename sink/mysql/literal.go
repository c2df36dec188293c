package mysql

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
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
		b, err := appendTime(append(b, '\''), v.Ints[r])
		return append(b, '\''), err
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

var errYear = errors.New("the year is outside of 1 to 9999")

const (
	microsPerSecond = 1_000_000
	firstMicro      = -62135596800 * microsPerSecond // 0001-01-01T00:00:00Z
	endMicro        = 253402300800 * microsPerSecond // 10000-01-01T00:00:00Z
)

// appendTime appends microseconds since 1970 as YYYY-MM-DD hh:mm:ss.ffffff.
func appendTime(b []byte, micros int64) ([]byte, error) {
	if micros < firstMicro || micros >= endMicro {
		return b, fmt.Errorf("%w: %d microseconds since 1970", errYear, micros)
	}
	t := time.UnixMicro(micros).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	fraction := t.Nanosecond() / 1000
	b = appendPair(appendPair(b, year/100), year%100)
	b = appendPair(append(b, '-'), int(month))
	b = appendPair(append(b, '-'), day)
	b = appendPair(append(b, ' '), hour)
	b = appendPair(append(b, ':'), minute)
	b = appendPair(append(b, ':'), second)
	b = appendPair(append(b, '.'), fraction/10000)
	return appendPair(appendPair(b, fraction/100%100), fraction%100), nil
}

func appendPair(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }
