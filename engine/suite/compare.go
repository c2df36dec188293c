package suite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// A comparison compares values of JSON.
type comparison struct {
	subset       bool // the expected objects name only some of the fields
	nullIsAbsent bool // a null in a row equals a missing field
	report       func(path string, want, got *any)
}

// compare reports where a value is not the expected one. path is that of the value.
func (c *comparison) compare(path string, want, got any) {
	switch want := want.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			c.compareObjects(path, want, got)
			return
		}
	case []any:
		if got, ok := got.([]any); ok && len(got) == len(want) {
			for i := range want {
				c.compare(fmt.Sprintf("%s[%d]", path, i+1), want[i], got[i])
			}
			return
		}
	case json.Number:
		if got, ok := got.(json.Number); ok && equalNumbers(want, got) {
			return
		}
	default:
		if want == got { // text, true, false or null
			return
		}
	}
	c.report(path, &want, &got)
}

func (c *comparison) compareObjects(path string, want, got map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value, found := got[key]
		if !found && c.nullIsAbsent && want[key] == nil {
			continue
		}
		if !found {
			missing := want[key]
			c.report(within(path, key), &missing, nil)
			continue
		}
		c.compare(within(path, key), want[key], value)
	}
	if c.subset {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, expected := want[key]; expected || c.nullIsAbsent && got[key] == nil {
			continue
		}
		further := got[key]
		c.report(within(path, key), nil, &further)
	}
}

// within returns the path of a field.
func within(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// digitsMax bounds numbers that are compared by value; others are compared as text.
const digitsMax = 400

// equalNumbers reports whether two numbers are equal, however they are spelled.
func equalNumbers(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, okX := rational(a)
	y, okY := rational(b)
	return okX && okY && x.Cmp(y) == 0
}

func rational(n json.Number) (*big.Rat, bool) {
	text := string(n)
	if _, exponent, found := strings.Cut(strings.ToLower(text), "e"); len(text) > digitsMax || found && len(exponent) > len("-308") {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// show returns a value as JSON, or "" for none.
func show(value *any) string {
	if value == nil {
		return ""
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(*value); err != nil {
		return fmt.Sprint(*value)
	}
	return strings.TrimSpace(b.String())
}
