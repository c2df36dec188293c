package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// shapeHint returns how to write a value of the wrong shape.
func shapeHint(n *node, want shape, name string) string {
	key := name + ": "
	switch {
	case strings.HasPrefix(name, "item "):
		key = ""
	case strings.HasPrefix(name, "the "):
		return ""
	case strings.Contains(name, " "):
		key = name[strings.LastIndexByte(name, ' ')+1:] + ": "
	}
	value := func(n *node) string {
		if isTelling(name) {
			return "VALUE"
		}
		return shortRaw(n)
	}
	switch want {
	case mapping:
		return "write " + key + "{KEY: VALUE}"
	case sequence:
		if n.shape == scalar {
			return "write " + key + "[" + value(n) + "]"
		}
		return "write " + key + "[{KEY: VALUE}], or a dash before the first key of each item"
	}
	if n.shape == sequence && len(n.items) == 1 && n.items[0].shape == scalar {
		return "write " + key + value(n.items[0])
	}
	return "write one value: " + key + "VALUE"
}

// structHint returns the line that the writer of a scalar in the place of a mapping meant, or "".
func structHint(n *node, t reflect.Type, name string) string {
	fields := fieldsOf(t)
	isItem := strings.HasPrefix(name, "item ")
	if len(fields) == 0 || n.shape != scalar || strings.Contains(name, " ") && !isItem {
		return ""
	}
	chosen := slices.IndexFunc(fields, func(f Field) bool { return f.Required })
	first := fields[max(chosen, 0)]
	value := n.raw
	switch kind := first.typ.Kind(); {
	case kind == reflect.Slice && first.typ.Elem().Kind() == reflect.String && value != "":
		value = "[" + value + "]"
	case shapeOf(kind) != scalar || setScalar(reflect.New(first.typ).Elem(), value, first.size) != "" || value == "0":
		value = "…"
	}
	line := "{" + first.Key + ": " + value + "}"
	if !isItem {
		line = name + ": " + line
	}
	return "write " + line
}

// shortRaw returns a scalar as it is written, or … for a long one.
func shortRaw(n *node) string {
	if len(n.raw) > 60 || strings.Contains(n.raw, "\n") {
		return "…"
	}
	return n.raw
}

// addRemedy adds a hint to the faults since the first ones that are about a value of key f
// itself and have no hint.
func (d *document) addRemedy(f Field, n *node, since int) {
	for _, fault := range d.faults[since:] {
		if fault.Hint == "" && fault.Line == n.at.line && fault.Column == n.at.column {
			fault.Hint = d.mask(orElse(f.correct(n), f.suggestExample()))
		}
	}
}

func (f Field) suggestExample() string {
	if example := f.ExampleOf(); example != "" {
		return "for example: " + f.Key + ": " + example
	}
	return ""
}

// Spellings of other programs.
var (
	yesWords  = []string{"yes", "on", "1", "y", "t", "enabled"}
	noWords   = []string{"no", "off", "0", "n", "f", "disabled"}
	number    = regexp.MustCompile(`^[0-9][0-9_]*(\.[0-9]+)?$`)
	numberOf  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)$`)
	grouped   = regexp.MustCompile(`^[0-9]{1,3}([,. ][0-9]{3})+$`)
	timeWords = map[string]string{
		"sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m", "minutes": "m", "hr": "h", "hrs": "h", "hour": "h",
		"hours": "h", "day": "d", "days": "d", "msec": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms", "s": "s", "m": "m", "h": "h", "d": "d", "ms": "ms",
	}
	sizeWords = map[string]string{
		"k": "KiB", "kb": "kB", "kib": "KiB", "m": "MiB", "mb": "MB", "mib": "MiB", "g": "GiB", "gb": "GB", "gib": "GiB", "t": "TiB", "tb": "TB", "tib": "TiB",
		"kilobytes": "kB", "megabyte": "MB", "megabytes": "MB", "gigabyte": "GB", "gigabytes": "GB", "byte": "B", "bytes": "B",
	}
)

// correct returns the line that the writer of a scalar of the wrong type meant, or "". It
// guesses from what is written, never from the value of a variable.
func (f Field) correct(n *node) string {
	if n.shape != scalar || n.raw != n.text {
		return ""
	}
	text, meant := strings.ToLower(n.raw), ""
	parts := numberOf.FindStringSubmatch(text)
	switch {
	case f.Kind == "bool" && (slices.Contains(yesWords, text) || text == "true"):
		meant = "true"
	case f.Kind == "bool" && (slices.Contains(noWords, text) || text == "false"):
		meant = "false"
	case f.Kind == "duration" && number.MatchString(text):
		meant = text + "s"
	case f.Kind == "duration" && parts != nil && timeWords[parts[2]] != "":
		meant = parts[1] + timeWords[parts[2]]
	case f.Kind == "size" && parts != nil && sizeWords[parts[2]] != "":
		meant = parts[1] + sizeWords[parts[2]]
	case (f.Kind == "integer" || f.Kind == "size") && grouped.MatchString(text):
		meant = strings.NewReplacer(",", "", ".", "", " ", "").Replace(text)
	}
	if meant == "" || f.Check(meant) != nil {
		return ""
	}
	return "write " + f.Key + ": " + meant
}
