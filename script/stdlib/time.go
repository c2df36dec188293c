package stdlib

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/perigeedb/perigee/script"
)

// A clock returns the time that code sees.
type clock func(ctx context.Context) time.Time

// clockOf returns the clock of a trial, which may be nil. In a run at a fixed time, that time
// comes first.
func clockOf(trial *script.Trial) clock {
	now := trial.Clock()
	return func(ctx context.Context) time.Time {
		if at, fixed := script.TimeOf(ctx); fixed {
			return at
		}
		return now()
	}
}

// timeModule measures time in seconds since 1970 in UTC, with fractions down to the
// microsecond.
func timeModule(now clock) script.Module {
	return script.Module{Name: "time", Pure: map[string]script.Func{
		"format": formatTime,
		"now":    func(ctx context.Context, _ []any) ([]any, error) { return one(seconds(now(ctx))), nil },
		"parse":  parseTime,
		"unix":   func(ctx context.Context, _ []any) ([]any, error) { return one(float64(now(ctx).Unix())), nil },
	}}
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// parseTime is parse(text) for RFC 3339. A space may replace the T, and a date alone
// means midnight in UTC.
func parseTime(_ context.Context, args []any) ([]any, error) {
	s, err := text(args, 0)
	if err != nil {
		return nil, err
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return one(seconds(t)), nil
		}
	}
	return failure(errors.New("invalid time, want RFC 3339 such as 2026-11-22T10:00:00Z: " + s)), nil
}

// Seconds of the years 0 and 9999, beyond which no format writes.
const secondsMin, secondsMax = -62167219200, 253402300799

// formatTime is format(seconds, [template]): RFC 3339, or a template with conversion
// specifiers.
func formatTime(_ context.Context, args []any) ([]any, error) {
	at, err := number(args, 0)
	if err != nil {
		return nil, err
	}
	if err := checkSeconds(at); err != nil {
		return nil, fmt.Errorf("argument 1, %w", err)
	}
	t := time.UnixMicro(int64(math.Round(at * 1e6))).UTC()
	if value(args, 1) == nil {
		return one(t.Format(time.RFC3339Nano)), nil
	}
	template, err := text(args, 1)
	if err == nil {
		err = checkTemplate(template)
	}
	if err != nil {
		return nil, err
	}
	s, err := strftime(t, template)
	if err != nil {
		return nil, err
	}
	return one(s), nil
}

// templateMax bounds a template for times: what comes of it can be ten times as long.
const templateMax = 4 << 10

func checkTemplate(template string) error {
	if len(template) > templateMax {
		return fmt.Errorf("the template has %d bytes; at most %d are allowed", len(template), templateMax)
	}
	return nil
}

// strftime replaces the conversion specifiers of a template: those of C, and %s, %L and
// %f for seconds, milliseconds and microseconds.
func strftime(t time.Time, template string) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(template, "%")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if after == "" {
			return "", errors.New("the template ends with a single %; write %% for one")
		}
		s, known := directive(t, after[0])
		if !known {
			return "", fmt.Errorf("the template has the unknown directive %%%c", after[0])
		}
		out.WriteString(s)
		template = after[1:]
	}
}

func directive(t time.Time, c byte) (text string, known bool) {
	switch c {
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'L':
		return fmt.Sprintf("%03d", t.Nanosecond()/1e6), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1e3), true
	case 'Y':
		return t.Format("2006"), true
	case 'F':
		return t.Format(time.DateOnly), true
	}
	return conversion(t, false, c)
}
