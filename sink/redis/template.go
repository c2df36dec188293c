package redis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/sink"
)

// A template makes a key of a document: pieces of text with a field of the document
// between each two.
type template struct {
	text  []string // one more than paths
	paths [][]string
}

func parseTemplate(s string) (t template, err error) {
	rest := s
	for {
		text, after, found := strings.Cut(rest, "{")
		t.text = append(t.text, text)
		if !found {
			break
		}
		path, behind, closed := strings.Cut(after, "}")
		if !closed {
			return t, fmt.Errorf("hash %q has a brace that is not closed", s)
		}
		parts := strings.Split(path, ".")
		if slices.Contains(parts, "") {
			return t, fmt.Errorf("hash %q: {%s} is not a field; write it as {a.b}", s, path)
		}
		t.paths = append(t.paths, parts)
		rest = behind
	}
	if len(t.paths) == 0 {
		return t, fmt.Errorf("hash %q has no field in braces, so all documents would be one hash; write it as user:{id}", s)
	}
	return t, nil
}

// fieldInKey matches a field in the key of a hash.
var fieldInKey = regexp.MustCompile(`\{[^}]*\}`)

// identity returns a key without the names of its fields, because fields of other names may have
// the same values.
func identity(_ sink.Env, key string) (string, error) {
	return fieldInKey.ReplaceAllString(key, "{}"), nil
}

// A hashRow is a document as it is written to a hash.
type hashRow struct {
	key    string
	fields []string // names and values in turn
}

// makeHash makes the hash of a document: strings without quotes, other values as
// they are spelled in JSON. Null is left out.
func (t *template) makeHash(doc []byte) (row hashRow, err error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(doc, &object); err != nil || object == nil {
		return row, errors.New("the document is not an object, so it cannot become a hash")
	}
	if row.key, err = t.key(object); err != nil {
		return row, err
	}
	if strings.HasPrefix(row.key, "perigee:") || strings.HasSuffix(row.key, ":perigee") {
		return row, fmt.Errorf("the key would be %q, which is reserved for positions", row.key)
	}
	for name, value := range object {
		if text, ok := plain(value); ok {
			row.fields = append(row.fields, name, text)
		}
	}
	if len(row.fields) == 0 {
		return row, errors.New("the document has no field to write to a hash")
	}
	return row, nil
}

func (t *template) key(object map[string]json.RawMessage) (string, error) {
	var key strings.Builder
	key.WriteString(t.text[0])
	for i, path := range t.paths {
		value, err := lookUp(object, path)
		if err != nil {
			return "", fmt.Errorf("field %q of the key: %w", strings.Join(path, "."), err)
		}
		key.WriteString(value)
		key.WriteString(t.text[i+1])
	}
	return key.String(), nil
}

// lookUp returns the string, number or boolean at a path.
func lookUp(object map[string]json.RawMessage, path []string) (string, error) {
	for _, name := range path[:len(path)-1] {
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(object[name], &inner); err != nil {
			return "", errors.New("it is missing")
		}
		object = inner
	}
	value := bytes.TrimSpace(object[path[len(path)-1]])
	text, ok := plain(value)
	switch {
	case !ok:
		return "", errors.New("it is missing or null")
	case value[0] == '{' || value[0] == '[':
		return "", errors.New("it is an object or an array, which cannot be part of a key")
	case text == "":
		return "", errors.New("it is empty")
	}
	return text, nil
}

// plain returns a value as Redis stores it; ok is false for null and for a missing one.
func plain(value json.RawMessage) (text string, ok bool) {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || string(value) == "null" {
		return "", false
	}
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text, true
	}
	return string(value), true
}
