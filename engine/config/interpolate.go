package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Placeholders replace variables before YAML parses the text, and values replace the
// placeholders afterwards, so that a value can contain any character and never becomes
// syntax. A placeholder is a run of one private-use character with the length of the
// occurrence, so all columns in the file stay the same.
const (
	maskFirst = 0xF0000
	maskLast  = 0xFFFFD
)

var (
	variable = regexp.MustCompile(`\$\$|\$\{[^}\n]*\}`)
	inside   = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)(.*))?\}$`)
)

// A variableUse is one occurrence of a variable, or of an escaped dollar.
type variableUse struct {
	raw string
	at  place
}

// maskVariables replaces every use of a variable by its private-use character. If fill is false, it
// takes variables for plain text.
func maskVariables(text string, fill bool) (string, []variableUse, *Error) {
	for offset, r := range text {
		if r >= maskFirst && r <= maskLast {
			return "", nil, errorAt(text, offset, fmt.Sprintf("character %U is not allowed in a configuration", r))
		}
		if r == utf8.RuneError && !strings.HasPrefix(text[offset:], "\uFFFD") {
			return "", nil, errorAt(text, offset, "the file is not UTF-8")
		}
	}
	if !fill {
		return text, nil, nil
	}
	found := variable.FindAllStringIndex(text, -1)
	if len(found) > maskLast-maskFirst {
		return "", nil, errorAt(text, 0, "too many variables")
	}
	var masked strings.Builder
	var all []variableUse
	end := 0
	for i, span := range found {
		raw := text[span[0]:span[1]]
		masked.WriteString(text[end:span[0]])
		masked.WriteString(strings.Repeat(string(rune(maskFirst+i)), utf8.RuneCountInString(raw)))
		all = append(all, variableUse{raw: raw, at: placeOf(text, span[0])})
		end = span[1]
	}
	masked.WriteString(text[end:])
	return masked.String(), all, nil
}

// An unsetError is a variable that is not set and has no default.
type unsetError struct{ name string }

func (e *unsetError) Error() string { return fmt.Sprintf("environment variable %s is not set", e.name) }

// unmask replaces each run of private-use characters in s by the result of put.
func unmask(s string, put func(index int) string) string {
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

// fileSuffix follows the name of a variable in the name of the variable that names a file
// with the value, as in the images of databases.
const fileSuffix = "_FILE"

// valueMax is the maximum size of the file with a value; it guards against wrong files.
const valueMax = 1 << 20

// evaluate returns the value by the rules of a shell: with a default or a message, an empty
// variable counts as unset.
func (x variableUse) evaluate(lookup func(string) (string, bool)) (string, error) {
	value, _, err := x.resolve(lookup)
	return value, err
}

// A valueOrigin is where the value of a variable is from.
type valueOrigin struct {
	text   string // for people
	isFile bool
}

// resolve is like evaluate, and also returns the origin of the value.
func (x variableUse) resolve(lookup func(string) (string, bool)) (value string, from valueOrigin, err error) {
	if x.raw == "$$" {
		return "$", from, nil
	}
	m := inside.FindStringSubmatch(x.raw)
	if m == nil {
		return "", from, fmt.Errorf("invalid variable %s: use ${NAME}, ${NAME:-default} or ${NAME:?message}", x.raw)
	}
	name, operator, word := m[1], m[2], m[3]
	value, from, set, err := lookupValue(name, lookup)
	switch {
	case err != nil:
		return "", from, err
	case operator == ":-" && value == "":
		return word, valueOrigin{text: "default of variable " + name}, nil
	case operator == ":?" && value == "":
		if word == "" {
			word = "it must be set"
		}
		return "", from, fmt.Errorf("environment variable %s: %s", name, word)
	case !set:
		return "", from, &unsetError{name}
	}
	return value, from, nil
}

// lookupValue returns the value of a variable, or the content of the file that the variable
// with the suffix _FILE names, without its last line break.
func lookupValue(name string, lookup func(string) (string, bool)) (value string, from valueOrigin, set bool, err error) {
	value, set = lookup(name)
	path, named := lookup(name + fileSuffix)
	switch {
	case !named || path == "":
		return value, valueOrigin{text: "environment variable " + name}, set, nil
	case value != "":
		return "", from, false, &valueFileError{name, errors.New("both are set: unset one of them")}
	}
	f, err := os.Open(path)
	if err != nil {
		return "", from, false, &valueFileError{name, err}
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, valueMax+1))
	switch {
	case err != nil:
		return "", from, false, &valueFileError{name, err}
	case len(content) > valueMax:
		return "", from, false, &valueFileError{name, fmt.Errorf("%s is larger than %d bytes", path, valueMax)}
	}
	value = strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	return value, valueOrigin{fmt.Sprintf("file %s, named by %s", path, name+fileSuffix), true}, true, nil
}

// A valueFileError is a variable whose value cannot be read from a file.
type valueFileError struct {
	name  string
	cause error
}

func (e *valueFileError) Error() string {
	return fmt.Sprintf("environment variables %s and %[1]s%s: %v", e.name, fileSuffix, e.cause)
}

func (e *valueFileError) Unwrap() error { return e.cause }
