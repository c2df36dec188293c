package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

var duration = reflect.TypeFor[time.Duration]()

// isDuration reports whether a type holds a time.Duration.
func isDuration(t reflect.Type) bool {
	return t == duration || t == reflect.TypeFor[catalog.Duration]()
}

// units of a size. Each name precedes its own suffixes.
var units = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// decodeScalar fills v from a scalar. A number or a word may be quoted, because variables
// often are.
func (d *document) decodeScalar(n *node, v reflect.Value, name string, size bool) {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && !isDuration(v.Type()) {
		d.decodeText(n, u, name)
		return
	}
	if wanted := setScalar(v, n.text, size); wanted != "" {
		d.addFault(n.at, "", "%s must be %s, not %s", name, wanted, quoteShort(n.raw))
	}
}

// decodeText fills a value that decodes itself. Its error may quote the value, so decodeText
// returns it only if the value is literally in the file.
func (d *document) decodeText(n *node, u encoding.TextUnmarshaler, name string) {
	err := u.UnmarshalText([]byte(n.text))
	switch {
	case err == nil:
	case n.text == n.raw:
		d.addFault(n.at, "", "%s: %v", name, err)
	default:
		d.addFault(n.at, "", "%s cannot be %s", name, quoteShort(n.raw))
	}
}

// setScalar parses text into v. On failure it returns a description of valid values.
func setScalar(v reflect.Value, text string, size bool) (wanted string) {
	switch k := v.Kind(); {
	case isDuration(v.Type()):
		return setDuration(v, text)
	case size:
		return setSize(v, text)
	case k == reflect.String:
		v.SetString(text)
	case k == reflect.Bool:
		return setBool(v, text)
	case v.CanInt():
		i, err := strconv.ParseInt(removeUnderscores(text), 10, v.Type().Bits())
		v.SetInt(i)
		return wholeNumber(err)
	case v.CanUint():
		u, err := strconv.ParseUint(removeUnderscores(text), 10, v.Type().Bits())
		v.SetUint(u)
		return wholeNumber(err)
	case v.CanFloat():
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return "a number"
		}
		v.SetFloat(f)
	default:
		panic(fmt.Sprintf("config: no way to fill a %s", v.Type()))
	}
	return ""
}

func setBool(v reflect.Value, text string) string {
	if text != "true" && text != "false" {
		return "true or false"
	}
	v.SetBool(text == "true")
	return ""
}

func setDuration(v reflect.Value, text string) string {
	t, err := parseDuration(text)
	if err != nil || t < 0 {
		return "a duration such as 100ms, 2s, 5m or 30d"
	}
	v.SetInt(int64(t))
	return ""
}

// daysMax is the maximum number of days of a time.Duration.
const daysMax = int(math.MaxInt64 / (24 * time.Hour))

// parseDuration is like time.ParseDuration, and accepts leading days of 24 hours: 30d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
	number, rest, found := strings.Cut(text, "d")
	days, err := strconv.Atoi(number)
	if !found || err != nil || days < 0 || days >= daysMax {
		return time.ParseDuration(text)
	}
	t := time.Duration(days) * 24 * time.Hour
	if rest == "" {
		return t, nil
	}
	hours, err := time.ParseDuration(rest)
	if err != nil || hours < 0 || t+hours < t {
		return 0, fmt.Errorf("invalid duration %s", quoteShort(text))
	}
	return t + hours, nil
}

func setSize(v reflect.Value, text string) string {
	number, bytes := text, 1.0
	for _, u := range units {
		if before, found := strings.CutSuffix(text, u.name); found {
			number, bytes = strings.TrimSpace(before), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(removeUnderscores(number), 64)
	if f *= bytes; err != nil || !(f >= 0 && f < math.MaxInt64) || f != math.Trunc(f) || v.OverflowInt(int64(f)) {
		return "a size such as 64MiB or 1MB"
	}
	v.SetInt(int64(f))
	return ""
}

// removeUnderscores removes the underscores that make a long number readable.
func removeUnderscores(text string) string { return strings.ReplaceAll(text, "_", "") }

func wholeNumber(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, strconv.ErrRange):
		return "a number that fits"
	}
	return "a whole number"
}

// quoteShort quotes a text and shortens it.
func quoteShort(s string) string {
	const width = 60
	if runes := []rune(s); len(runes) > width {
		s = string(runes[:width]) + "…"
	}
	return strconv.Quote(s)
}
