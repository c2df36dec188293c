package sqlsink

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
)

var errYear = errors.New("the year is outside of 1 to 9999")

const (
	microsPerSecond = 1_000_000
	firstMicro      = -62135596800 * microsPerSecond // 0001-01-01T00:00:00Z
	endMicro        = 253402300800 * microsPerSecond // 10000-01-01T00:00:00Z
)

// CheckTime rejects microseconds since 1970 whose year does not have one to four
// digits.
func CheckTime(micros int64) error {
	if micros < firstMicro || micros >= endMicro {
		return fmt.Errorf("%w: %d microseconds since 1970", errYear, micros)
	}
	return nil
}

// TimeLength is how many bytes AppendTime appends.
const TimeLength = len("2006-01-02 15:04:05.000000")

// AppendTime appends microseconds since 1970 as YYYY-MM-DD hh:mm:ss.ffffff. The
// time must have passed CheckTime.
func AppendTime(b []byte, micros int64) []byte {
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
	return appendPair(appendPair(b, fraction/100%100), fraction%100)
}

func appendPair(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

// CheckScale rejects a number with more digits after the point than its column
// keeps, which servers would round silently. A negative scale keeps all.
func CheckScale(number []byte, scale int) error {
	if scale < 0 {
		return nil
	}
	if digits := fraction(number); digits > scale {
		return fmt.Errorf("%d digits after the point, and the column keeps %d", digits, scale)
	}
	return nil
}

// fraction counts the digits after the point that are needed to spell a number
// without an exponent.
func fraction(number []byte) int {
	exponent := 0
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		parsed, _ := strconv.ParseInt(string(number[e+1:]), 10, 32) // clamped if it is out of range
		exponent, number = int(parsed), number[:e]
	}
	if !bytes.ContainsAny(number, "123456789") {
		return 0
	}
	whole, decimals, _ := bytes.Cut(number, []byte{'.'})
	digits := len(bytes.TrimRight(decimals, "0"))
	if digits == 0 {
		digits = len(bytes.TrimRight(whole, "0")) - len(whole)
	}
	return max(0, digits-exponent)
}

// maxShown is how many bytes of a rejected value an error shows.
const maxShown = 64

// describeValue adds the column and its value to the reason why a row is rejected.
func describeValue(err error, columns *event.Columns, c, row int) error {
	return fmt.Errorf("column %q: %w; the value is %s", columns.Spec[c].Name, err, formatValue(columns, c, row))
}

func formatValue(columns *event.Columns, c, row int) string {
	v := &columns.Vectors[c]
	if v.Null[row] != 0 {
		return "NULL"
	}
	switch columns.Spec[c].Type {
	case event.Bool, event.Int32, event.Int64:
		return strconv.FormatInt(v.Ints[row], 10)
	case event.Float64:
		return strconv.FormatFloat(v.Floats[row], 'g', -1, 64)
	case event.Timestamp:
		if CheckTime(v.Ints[row]) == nil {
			return "'" + string(AppendTime(nil, v.Ints[row])) + "'"
		}
		return strconv.FormatInt(v.Ints[row], 10)
	}
	text := v.Text(row)
	if len(text) <= maxShown {
		return "'" + printable(text) + "'"
	}
	return fmt.Sprintf("'%s… (%d bytes)", printable(text[:maxShown]), len(text))
}

// printable makes text fit for a log: it may be cut anywhere and contain anything.
func printable(text []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(text), ""), "\x00", `\u0000`)
}
