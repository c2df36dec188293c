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
)

var duration = reflect.TypeFor[time.Duration]()

// units of a size, the longer names first where one ends in another.
var units = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// value fills v, which holds one value and no others, from a scalar. A number
// or a word may stand in quotes, because a variable often does.
func (d *document) value(n *node, v reflect.Value, name string, size bool) {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.textual(n, u, name)
		return
	}
	if wanted := set(v, n.text, size); wanted != "" {
		d.fault(n.at, "", "%s must be %s, not %s", name, wanted, quote(n.raw))
	}
}

// textual fills a value that reads itself. Its error may quote the value, so it
// is only passed on where the value stands in the file.
func (d *document) textual(n *node, u encoding.TextUnmarshaler, name string) {
	err := u.UnmarshalText([]byte(n.text))
	switch {
	case err == nil:
	case n.text == n.raw:
		d.fault(n.at, "", "%s: %v", name, err)
	default:
		d.fault(n.at, "", "%s cannot be %s", name, quote(n.raw))
	}
}

// set parses text into v and returns what was wanted when it cannot.
func set(v reflect.Value, text string, size bool) (wanted string) {
	switch k := v.Kind(); {
	case v.Type() == duration:
		return setDuration(v, text)
	case size:
		return setSize(v, text)
	case k == reflect.String:
		v.SetString(text)
	case k == reflect.Bool:
		return setBool(v, text)
	case v.CanInt():
		i, err := strconv.ParseInt(digits(text), 10, v.Type().Bits())
		v.SetInt(i)
		return wholeNumber(err)
	case v.CanUint():
		u, err := strconv.ParseUint(digits(text), 10, v.Type().Bits())
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
	t, err := time.ParseDuration(text)
	if err != nil || t < 0 {
		return "a duration such as 100ms, 2s or 5m"
	}
	v.SetInt(int64(t))
	return ""
}

func setSize(v reflect.Value, text string) string {
	number, bytes := text, 1.0
	for _, u := range units {
		if before, found := strings.CutSuffix(text, u.name); found {
			number, bytes = strings.TrimSpace(before), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(digits(number), 64)
	if f *= bytes; err != nil || !(f >= 0 && f < math.MaxInt64) || f != math.Trunc(f) || v.OverflowInt(int64(f)) {
		return "a size such as 64MiB or 1MB"
	}
	v.SetInt(int64(f))
	return ""
}

// digits drops the underscores that make a long number readable.
func digits(text string) string { return strings.ReplaceAll(text, "_", "") }

func wholeNumber(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, strconv.ErrRange):
		return "a number that fits"
	}
	return "a whole number"
}

// quote shortens what would hide the message.
func quote(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return strconv.Quote(s)
}
