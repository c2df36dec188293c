package stdlib

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Skipf("no time zones here: %v", err)
	}
	return zone
}

// callOS calls a function of os and returns its result, or the error.
func callOS(t *testing.T, zone *time.Location, name string, args ...any) (any, error) {
	t.Helper()
	results, err := Call(t.Context(), "os."+name, osModule(zone, clockOf(nil)).Pure[name], args)
	if err != nil || len(results) != 1 {
		return nil, err
	}
	return results[0], nil
}

// TestDateAgainstC holds os.date to the strftime of the machine's date command.
func TestOSDateAgainstC(t *testing.T) {
	if _, err := exec.LookPath("date"); err != nil {
		t.Skip("no date command")
	}
	const format = "%a|%A|%b|%B|%c|%C|%d|%D|%e|%F|%g|%G|%h|%H|%I|%j|%m|%M|%n|%p|%r|%R|%S|%t|%T|%u|%U|%V|%w|%W|%x|%X|%y|%Y|%z|%Z|%%|%Ey|%Od|text"
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "America/Sao_Paulo"} {
		local := zone(t, name)
		for _, at := range []int64{0, 1, 951_782_400, 1_000_000_000, 1_230_768_000, 1_293_839_999, 1_609_459_199, 1_700_000_000, 1_751_371_200, 1_792_900_799, 4_102_444_800} {
			date := exec.Command("date", "-d", fmt.Sprint("@", at), "+"+format)
			date.Env = []string{"LC_ALL=C", "TZ=" + name}
			want, err := date.Output()
			if err != nil {
				t.Skipf("date -d: %v", err)
			}
			got, err := callOS(t, local, "date", format, float64(at))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSuffix(string(want), "\n"), got); diff != "" {
				t.Errorf("%s at %d (-date +os.date):\n%s", name, at, diff)
			}
		}
	}
}

func TestOSDate(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		args []any
		want any
	}{
		{[]any{"!%Y-%m-%d %H:%M:%S %Z", 1.7e9}, "2023-11-14 22:13:20 GMT"},
		{[]any{"%Y-%m-%d %H:%M:%S %Z", 1.7e9}, "2023-11-14 23:13:20 CET"},
		{[]any{"%H %Z", 1751371200.9}, "14 CEST"},
		{[]any{"", 0.0}, ""},
		{[]any{"!%c", 0.0}, "Thu Jan  1 00:00:00 1970"},
		{[]any{"!*t", 1.7e9}, map[string]any{"year": 2023.0, "month": 11.0, "day": 14.0, "hour": 22.0, "min": 13.0, "sec": 20.0, "wday": 3.0, "yday": 318.0, "isdst": false}},
		{[]any{"*t", 1751371200.0}, map[string]any{"year": 2025.0, "month": 7.0, "day": 1.0, "hour": 14.0, "min": 0.0, "sec": 0.0, "wday": 3.0, "yday": 182.0, "isdst": true}},
	} {
		got, err := callOS(t, berlin, "date", c.args...)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("date(%v): %v (-want +got):\n%s", c.args, err, diff)
		}
	}
	for want, args := range map[string][]any{
		`invalid conversion specifier "%Q"`: {"%Y%Q"}, `invalid conversion specifier "%"`: {"100%"},
		`invalid conversion specifier "%Ez"`: {"%Ez"}, `invalid conversion specifier "%O"`: {"%O"}, `invalid conversion specifier "%s"`: {"%s"},
		"must be a string": {true}, "must be a number": {"%c", "now"}, "out of range": {"%c", 1e300},
	} {
		if got, err := callOS(t, berlin, "date", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("date(%v) returned %v, %v; want an error with %q", args, got, err, want)
		}
	}
	now, err := callOS(t, berlin, "date", "!%Y-%m-%d")
	if today := time.Now().UTC().Format(time.DateOnly); err != nil || now.(string) > today {
		t.Errorf("today is %v, %v; want %s", now, err, today)
	}
}

func TestOSTime(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	type table = map[string]any
	for _, c := range []struct {
		table table
		want  float64
	}{
		{table{"year": 2023.0, "month": 11.0, "day": 14.0, "hour": 23.0, "min": 13.0, "sec": 20.0}, 1.7e9},
		{table{"year": 2023.0, "month": 11.0, "day": 14.0}, 1699959600},
		{table{"year": "2023", "month": 11.0, "day": 14.0, "isdst": false}, 1699959600},
		{table{"year": 2023.0, "month": 11.0, "day": 14.0, "isdst": true}, 1699956000},               // an hour before
		{table{"year": 2025.0, "month": 7.0, "day": 1.0, "isdst": false}, 1751367600},                // an hour after
		{table{"year": 2025.0, "month": 10.0, "day": 26.0, "hour": 2.0, "isdst": true}, 1761436800},  // twice that day
		{table{"year": 2025.0, "month": 10.0, "day": 26.0, "hour": 2.0, "isdst": false}, 1761440400}, //
		{table{"year": 2024.0, "month": 14.0, "day": -3.0, "hour": 0.0}, 1738018800},                 // 2025-01-28
	} {
		got, err := callOS(t, berlin, "time", c.table)
		if got != c.want || err != nil {
			t.Errorf("time(%v) is %v, %v; want %v", c.table, got, err, c.want)
		}
	}
	for want, arg := range map[string]any{
		`field "year" missing`: []any{}, `field "day" missing`: table{"year": 2020.0, "month": 1.0}, "must be a table": "2020",
		`field "month" of the date table is not an integer`: table{"year": 2020.0, "month": "May", "day": 1.0},
		"out of range": table{"year": 20200.0, "month": 1.0, "day": 1.0},
	} {
		if got, err := callOS(t, berlin, "time", arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("time(%v) returned %v, %v; want an error with %q", arg, got, err, want)
		}
	}
	now, err := callOS(t, berlin, "time")
	if late := float64(time.Now().Unix()) - now.(float64); err != nil || late < 0 || late > 60 {
		t.Errorf("now is %v, %v", now, err)
	}
}

func TestOSDifftimeAndClock(t *testing.T) {
	for want, args := range map[float64][]any{5: {15.0, 10.0}, 15: {15.9}} {
		if got, err := callOS(t, time.Local, "difftime", args...); got != want || err != nil {
			t.Errorf("difftime(%v) is %v, %v; want %v", args, got, err, want)
		}
	}
	first, err := callOS(t, time.Local, "clock")
	if err != nil || first.(float64) <= 0 {
		t.Errorf("clock is %v, %v", first, err)
	}
}
