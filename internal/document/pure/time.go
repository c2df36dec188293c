package pure

import (
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/report"
)

// timeNumber parses a number of units since 1970 and truncates it to the precision of the column,
// microseconds or nanoseconds.
func timeNumber(text string, c event.Column) (cell, report.Misfit) {
	if c.Unit == event.TextOnly {
		return cell{}, report.TimeNumber
	}
	x := readDecimal(text)
	if x.digits == "" {
		return cell{}, 0
	}
	x.exp += 6 - 3*int(c.Unit)
	if c.Type == event.TimestampNS {
		x.exp += 3
	}
	if x.exp <= 0 {
		return cell{}, 0
	}
	if x.exp < len(x.digits) {
		x.digits = x.digits[:x.exp]
	}
	at, ok, _ := x.int64()
	if !ok || c.Type == event.Timestamp && !inYears(at) || c.Type == event.TimestampNS && !inNanos(at/1e9) {
		return cell{}, report.LateTime
	}
	return cell{i: at}, 0
}

// inNanos reports whether a time in seconds is in the years 1678 to 2261, which int64 nanoseconds
// can represent.
func inNanos(seconds int64) bool { return seconds >= -9214560000 && seconds < 9214646400 }

// inYears reports whether a time is in the years 1 to 9999.
func inYears(micros int64) bool {
	return micros >= -62135596800000000 && micros < 253402300800000000
}

// clock parses an RFC 3339 time, or "YYYY-MM-DD HH:MM:SS[.frac]" as UTC.
func clock(text string, t event.Type) (cell, report.Misfit) {
	layout := "2006-01-02T15:04:05Z07:00"
	const separator = len("2006-01-02")
	if len(text) > separator && text[separator] == ' ' {
		layout = time.DateTime
	}
	at, err := time.Parse(layout, text)
	// Package time also accepts a comma before the fraction, and offsets beyond any zone's.
	if err != nil || strings.Contains(text, ",") || !clockShape(text) || !inYears(at.UnixMicro()) {
		return cell{}, report.BadTime
	}
	switch {
	case t == event.Timestamp:
		return cell{i: at.UnixMicro()}, 0
	case !inNanos(at.Unix()):
		return cell{}, report.FarTime
	}
	return cell{i: at.UnixNano()}, 0
}

// clockShape checks what package time does not: that all digits are present, the year, and the
// zone.
func clockShape(text string) bool {
	const whole = "dddd-dd-ddTdd:dd:dd"
	if len(text) < len(whole) || strings.HasPrefix(text, "0000") {
		return false
	}
	for i, place := range []byte(whole) {
		digit := text[i] >= '0' && text[i] <= '9'
		if digit != (place == 'd') {
			return false
		}
	}
	zone := strings.TrimLeft(strings.TrimPrefix(text[len(whole):], "."), "0123456789")
	return len(zone) != 6 || zone[1:3] <= "23" && zone[4:6] <= "59"
}
