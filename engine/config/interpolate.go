package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Variables are cut out of the text before YAML reads it and put in after, so
// that a value can hold any character and never becomes syntax. In between,
// each occurrence is a run of one private-use character, as long as what it
// stands for: every other position in the file stays true.
const (
	maskFirst = 0xF0000
	maskLast  = 0xFFFFD
)

var (
	variable = regexp.MustCompile(`\$\$|\$\{[^}\n]*\}`)
	inside   = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)(.*))?\}$`)
)

// An expression is one occurrence of a variable, or of an escaped dollar.
type expression struct {
	raw string
	at  place
}

// mask replaces every expression by its private-use character.
func mask(text string) (string, []expression, *Error) {
	for offset, r := range text {
		if r >= maskFirst && r <= maskLast {
			return "", nil, errorAt(text, offset, fmt.Sprintf("character %U is not allowed in a configuration", r))
		}
		if r == utf8.RuneError && !strings.HasPrefix(text[offset:], "\uFFFD") {
			return "", nil, errorAt(text, offset, "the file is not UTF-8")
		}
	}
	found := variable.FindAllStringIndex(text, -1)
	if len(found) > maskLast-maskFirst {
		return "", nil, errorAt(text, 0, "too many variables")
	}
	var masked strings.Builder
	var all []expression
	end := 0
	for i, span := range found {
		raw := text[span[0]:span[1]]
		masked.WriteString(text[end:span[0]])
		masked.WriteString(strings.Repeat(string(rune(maskFirst+i)), utf8.RuneCountInString(raw)))
		all = append(all, expression{raw: raw, at: placeOf(text, span[0])})
		end = span[1]
	}
	masked.WriteString(text[end:])
	return masked.String(), all, nil
}

// fill replaces each run of private-use characters in s by what put says of it.
func fill(s string, put func(index int) string) string {
	if !strings.ContainsFunc(s, isMask) {
		return s
	}
	var out strings.Builder
	last := rune(-1)
	for _, r := range s {
		switch {
		case !isMask(r):
			out.WriteRune(r)
		case r != last:
			out.WriteString(put(int(r - maskFirst)))
		}
		last = r
	}
	return out.String()
}

func isMask(r rune) bool { return r >= maskFirst && r <= maskLast }

// value computes an expression as a shell would: an empty variable counts as
// absent where a default or a message is given.
func (x expression) value(lookup func(string) (string, bool)) (string, error) {
	if x.raw == "$$" {
		return "$", nil
	}
	m := inside.FindStringSubmatch(x.raw)
	if m == nil {
		return "", fmt.Errorf("%s is not a variable: want ${NAME}, ${NAME:-default} or ${NAME:?message}", x.raw)
	}
	name, operator, word := m[1], m[2], m[3]
	value, set := lookup(name)
	switch {
	case operator == ":-" && value == "":
		return word, nil
	case operator == ":?" && value == "":
		if word == "" {
			word = "it must be set"
		}
		return "", fmt.Errorf("environment variable %s: %s", name, word)
	case !set:
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return value, nil
}
