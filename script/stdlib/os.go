package stdlib

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/script"
)

// OS returns what scripts get of Lua's library os: the functions of time, with the
// results of C's strftime and mktime in the C locale. It is a global, and not for
// require. The local time zone is that of the process. trial may be nil.
func OS(trial *script.Trial) script.Module {
	return replaceable(osModule(time.Local, clockOf(trial)), trial)
}

func osModule(zone *time.Location, now clock) script.Module {
	return script.Module{Name: "os", Pure: map[string]script.Func{
		"clock":    func(context.Context, []any) ([]any, error) { return one(processorTime()), nil },
		"date":     func(ctx context.Context, args []any) ([]any, error) { return osDate(zone, now(ctx), args) },
		"difftime": osDifftime,
		"time":     func(ctx context.Context, args []any) ([]any, error) { return osTime(zone, now(ctx), args) },
	}}
}

// processorTime returns the CPU time of the process in seconds.
func processorTime() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// osDate is date([format [, time]]).
func osDate(zone *time.Location, now time.Time, args []any) ([]any, error) {
	format := "%c"
	if value(args, 0) != nil {
		var err error
		if format, err = text(args, 0); err == nil {
			err = checkTemplate(format)
		}
		if err != nil {
			return nil, err
		}
	}
	at, err := optional(args, 1, float64(now.Unix()))
	if err != nil {
		return nil, err
	}
	if err := checkSeconds(at); err != nil {
		return nil, fmt.Errorf("argument 2, %w", err)
	}
	t := time.Unix(int64(at), 0).In(zone)
	format, utc := strings.CutPrefix(format, "!")
	if utc {
		t = t.UTC()
	}
	if format == "*t" {
		return one(dateTable(t)), nil
	}
	s, err := cStrftime(t, utc, format)
	if err != nil {
		return nil, err
	}
	return one(s), nil
}

// checkSeconds returns an error for times beyond the years 0 to 9999.
func checkSeconds(at float64) error {
	if !(at >= secondsMin && at <= secondsMax) {
		return fmt.Errorf("the seconds since 1970, is out of range: %g", at)
	}
	return nil
}

func dateTable(t time.Time) map[string]any {
	return map[string]any{
		"year": t.Year(), "month": int(t.Month()), "day": t.Day(), "hour": t.Hour(), "min": t.Minute(), "sec": t.Second(),
		"wday": int(t.Weekday()) + 1, "yday": t.YearDay(), "isdst": t.IsDST(),
	}
}

// cStrftime formats a time as C99's strftime does in the C locale. The modifiers E and
// O change nothing there. Unknown conversion specifiers are errors.
func cStrftime(t time.Time, utc bool, format string) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(format, "%")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		n := 1
		if len(after) > 1 && (after[0] == 'E' || after[0] == 'O') {
			n = 2
		}
		s, known := "", false
		if after != "" {
			s, known = conversion(t, utc, after[n-1])
		}
		if !known || n == 2 && strings.IndexByte(modified[after[0]], after[1]) < 0 {
			return "", fmt.Errorf("argument 1 has the invalid conversion specifier %q", "%"+after[:min(n, len(after))])
		}
		out.WriteString(s)
		format = after[n:]
	}
}

// modified are the conversion specifiers that follow a modifier.
var modified = map[byte]string{'E': "cCxXyY", 'O': "deHImMSuUVwWy"}

// layouts are the conversion specifiers that a layout of package time expresses.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'd': "02", 'D': "01/02/06", 'e': "_2", 'h': "Jan", 'H': "15",
	'I': "03", 'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': time.TimeOnly,
	'x': "01/02/06", 'X': time.TimeOnly, 'z': "-0700",
}

// conversion returns the text for a conversion specifier.
func conversion(t time.Time, utc bool, specifier byte) (text string, known bool) {
	if layout, ok := layouts[specifier]; ok {
		return t.Format(layout), true
	}
	week, day := 0, (int(t.Weekday())+6)%7 // day counts from Monday
	switch specifier {
	case 'g', 'G', 'V':
		year, iso := t.ISOWeek()
		text = map[byte]string{'g': fmt.Sprintf("%02d", year%100), 'G': fmt.Sprint(year), 'V': fmt.Sprintf("%02d", iso)}[specifier]
		return text, true
	case 'U':
		week = (t.YearDay() + 6 - int(t.Weekday())) / 7
	case 'W':
		week = (t.YearDay() + 6 - day) / 7
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 ") + fmt.Sprint(t.Year()), true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 'F':
		return fmt.Sprint(t.Year()) + t.Format("-01-02"), true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'u':
		return fmt.Sprint(day + 1), true
	case 'w':
		return fmt.Sprint(int(t.Weekday())), true
	case 'y':
		return fmt.Sprintf("%02d", t.Year()%100), true
	case 'Y':
		return fmt.Sprint(t.Year()), true
	case 'Z':
		if utc {
			return "GMT", true
		}
		name, _ := t.Zone()
		return name, true
	case '%':
		return "%", true
	default:
		return "", false
	}
	return fmt.Sprintf("%02d", week), true
}

// osTime is time([table]): the seconds since 1970 of now, or of a local time.
func osTime(zone *time.Location, now time.Time, args []any) ([]any, error) {
	if value(args, 0) == nil {
		return one(float64(now.Unix())), nil
	}
	fields, ok := args[0].(map[string]any)
	if list, isList := args[0].([]any); isList && len(list) == 0 {
		ok = true // an empty table
	}
	if !ok {
		return nil, wrong(0, "a table", args[0])
	}
	var n [6]int
	for i, field := range []struct {
		name      string
		otherwise int // -1 when it may not be missing
	}{{"year", -1}, {"month", -1}, {"day", -1}, {"hour", 12}, {"min", 0}, {"sec", 0}} {
		var err error
		if n[i], err = dateField(fields, field.name, field.otherwise); err != nil {
			return nil, err
		}
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, zone)
	if dst, given := fields["isdst"].(bool); given {
		t = withDST(t, dst)
	}
	if checkSeconds(float64(t.Unix())) != nil {
		return nil, errors.New("the time of the table is out of range")
	}
	return one(float64(t.Unix())), nil
}

// dateField returns a field of a date table.
func dateField(fields map[string]any, name string, otherwise int) (int, error) {
	const limit = 1 << 31 // as in C
	switch v := fields[name].(type) {
	case nil:
		if otherwise < 0 {
			return 0, fmt.Errorf("field %q missing in date table", name)
		}
		return otherwise, nil
	case float64:
		if math.Abs(v) < limit {
			return int(v), nil
		}
	case string:
		var x float64
		if _, err := fmt.Sscanf(v, "%g", &x); err == nil && math.Abs(x) < limit {
			return int(x), nil
		}
	}
	return 0, fmt.Errorf("field %q of the date table is not an integer", name)
}

// withDST returns the time with the same date and time of day as t, but with daylight
// saving time on or off. It uses the offset of the nearest such period. Without one it
// returns t.
func withDST(t time.Time, dst bool) time.Time {
	if t.IsDST() == dst {
		return t
	}
	start, end := t.ZoneBounds()
	var other time.Time
	if !start.IsZero() {
		other = start.Add(-time.Second)
	}
	if !end.IsZero() && (other.IsZero() || other.IsDST() != dst || end.Sub(t) < t.Sub(start)) && end.IsDST() == dst {
		other = end
	}
	if other.IsZero() || other.IsDST() != dst {
		return t
	}
	_, here := t.Zone()
	_, there := other.Zone()
	return t.Add(time.Duration(here-there) * time.Second)
}

// osDifftime is difftime(t2, t1), of whole seconds.
func osDifftime(_ context.Context, args []any) ([]any, error) {
	later, err := number(args, 0)
	if err != nil {
		return nil, err
	}
	earlier, err := optional(args, 1, 0)
	if err != nil {
		return nil, err
	}
	return one(math.Trunc(later) - math.Trunc(earlier)), nil
}
