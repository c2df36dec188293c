package stdlib

import (
	"math"
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	const at = 1795341600.0 // 2026-11-22T10:00:00Z, a Sunday
	check(t, "time", []call{
		{"parse", values{"2026-11-22T10:00:00Z"}, values{at}, ""},
		{"parse", values{"2026-11-22T12:00:00+02:00"}, values{at}, ""},
		{"parse", values{"2026-11-22T10:00:00.123456Z"}, values{at + 0.123456}, ""},
		{"parse", values{"2026-11-22 10:00:00Z"}, values{at}, ""},
		{"parse", values{"2026-11-22"}, values{at - 36000}, ""},
		{"parse", values{"1969-12-31T23:59:59.5Z"}, values{-0.5}, ""},
		{"parse", values{"yesterday"}, values{nil, "invalid time, want RFC 3339 such as 2026-11-22T10:00:00Z: yesterday"}, ""},
		{"parse", values{"2026-02-30T10:00:00Z"}, values{nil, "invalid time, want RFC 3339 such as 2026-11-22T10:00:00Z: 2026-02-30T10:00:00Z"}, ""},
		{"parse", values{nil}, nil, "argument 1"},
		{"format", values{at}, values{"2026-11-22T10:00:00Z"}, ""},
		{"format", values{at + 0.123456}, values{"2026-11-22T10:00:00.123456Z"}, ""},
		{"format", values{-0.5}, values{"1969-12-31T23:59:59.5Z"}, ""},
		{"format", values{at, "year=%Y/month=%m/day=%d/%H-%M-%S"}, values{"year=2026/month=11/day=22/10-00-00"}, ""},
		{"format", values{at + 0.0042, "%F %T.%L %f %s %j %y %e %I%p %a %A %b %B %z %Z 100%%"},
			values{"2026-11-22 10:00:00.004 004200 1795341600 326 26 22 10AM Sun Sunday Nov November +0000 UTC 100%"}, ""},
		{"format", values{at, "January 2006"}, values{"January 2006"}, ""},
		{"format", values{at, "%Q"}, nil, "%Q"},
		{"format", values{at, "50%"}, nil, "single %"},
		{"format", values{1e18}, nil, "out of range"},
		{"format", values{math.NaN()}, nil, "out of range"},
		{"format", values{"now"}, nil, "not a string"},
	})
}

func TestNow(t *testing.T) {
	for _, name := range []string{"now", "unix"} {
		before := float64(time.Now().Unix())
		got, err := function(t, "time", name)(t.Context(), nil)
		if x := got[0].(float64); err != nil || x < before || x > float64(time.Now().UnixMicro())/1e6 {
			t.Errorf("%s gave %v, %v; it is %v", name, got, err, before)
		}
	}
}
