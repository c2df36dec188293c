package mysql

import (
	"errors"
	"fmt"
	"strconv"

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
		return appendTime(b, v.Ints[r])
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
	microsPerDay    = 24 * 60 * 60 * microsPerSecond
	firstMicro      = -62135596800 * microsPerSecond // 0001-01-01T00:00:00Z
	endMicro        = 253402300800 * microsPerSecond // 10000-01-01T00:00:00Z
)

// appendTime appends microseconds since 1970 as 'YYYY-MM-DD hh:mm:ss.ffffff'.
func appendTime(b []byte, micros int64) ([]byte, error) {
	if micros < firstMicro || micros >= endMicro {
		return b, fmt.Errorf("%w: %d microseconds since 1970", errYear, micros)
	}
	day, rest := micros/microsPerDay, micros%microsPerDay
	if rest < 0 {
		day, rest = day-1, rest+microsPerDay
	}
	year, month, date := civil(day)
	seconds := rest / microsPerSecond
	b = append(b, '\'')
	b = appendPair(appendPair(b, year/100), year%100)
	b = appendPair(append(b, '-'), month)
	b = appendPair(append(b, '-'), date)
	b = appendPair(append(b, ' '), seconds/3600)
	b = appendPair(append(b, ':'), seconds/60%60)
	b = appendPair(append(b, ':'), seconds%60)
	fraction := rest % microsPerSecond
	b = appendPair(append(b, '.'), fraction/10000)
	b = appendPair(appendPair(b, fraction/100%100), fraction%100)
	return append(b, '\''), nil
}

func appendPair(b []byte, n int64) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

// civil turns days since 1970 into a date of the Gregorian calendar. It counts
// in eras of 400 years that begin on a first of March, so that a leap day is
// the last of its year.
func civil(day int64) (year, month, date int64) {
	const daysPerEra, daysTo1970 = 146097, 719468
	day += daysTo1970
	era := day / daysPerEra
	inEra := day % daysPerEra
	yearOfEra := (inEra - inEra/1460 + inEra/36524 - inEra/146096) / 365
	inYear := inEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	fromMarch := (5*inYear + 2) / 153
	date = inYear - (153*fromMarch+2)/5 + 1
	year, month = yearOfEra+era*400, fromMarch+3
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, date
}
