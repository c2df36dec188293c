package config

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// Decode fills the struct into from a text of YAML by its tags (see Fields), as strictly as Load
// reads a configuration, and returns the faults as Errors. Variables are plain text. what names
// the text in errors, and example is a minimal one, for hints.
func Decode(file, text, what, example string, into any) error {
	d := &document{file: file, example: example}
	root := d.parse(text)
	switch {
	case root == nil:
	case root.shape == null && !root.broken:
		d.addFault(root.at, "write at least:\n"+example, "%s is empty", what)
	case d.hasShape(root, mapping, what):
		d.decodeStruct(root, reflect.ValueOf(into).Elem(), what)
	}
	return d.faults.sorted()
}

// An Any is a value of any shape, with its place in the file. It is the type of a field whose
// value its owner reads. The zero value is not in the file.
type Any struct {
	node *node
	origin
}

var anyType = reflect.TypeFor[Any]()

// An Entry is a key of a mapping, with the place of the key, and its value.
type Entry struct {
	Key   string
	Value Any
	origin
}

// IsSet reports whether the value is in the file.
func (a Any) IsSet() bool { return a.node != nil }

// IsNull reports whether the value is null or empty.
func (a Any) IsNull() bool { return a.node != nil && a.node.shape == null }

// Line returns the line of the value.
func (a Any) Line() int { return a.at.line }

// Text returns the value if it is text or another single value.
func (a Any) Text() (text string, ok bool) {
	if a.node == nil || a.node.shape != scalar {
		return "", false
	}
	return a.node.text, true
}

// IsText reports whether the value is text, and not a number, true or false.
func (a Any) IsText() bool { return a.node != nil && a.node.shape == scalar && !a.node.typed }

// List returns the items if the value is a list.
func (a Any) List() (items []Any, ok bool) {
	if a.node == nil || a.node.shape != sequence {
		return nil, false
	}
	for _, item := range a.node.items {
		items = append(items, a.child(item))
	}
	return items, true
}

// Mapping returns the entries, in the order of the file, if the value is a mapping.
func (a Any) Mapping() (entries []Entry, ok bool) {
	if a.node == nil || a.node.shape != mapping {
		return nil, false
	}
	for _, e := range a.node.entries {
		entries = append(entries, Entry{e.key, a.child(e.value), origin{a.document, e.at}})
	}
	return entries, true
}

// Get returns the value of a key of a mapping, or the zero Any.
func (a Any) Get(key string) Any {
	if a.node == nil {
		return Any{}
	}
	if e := a.node.get(key); e != nil {
		return a.child(e.value)
	}
	return Any{}
}

func (a Any) child(n *node) Any { return Any{node: n, origin: origin{a.document, n.at}} }

// Decode fills the struct into from the value, by its tags. what names the value in errors.
func (a Any) Decode(into any, what string) error { return a.document.decodeOnly(a.node, into, what) }

// Unexpected returns the error that the value is not what it must be, such as "a list of rows".
func (a Any) Unexpected(what, want, hint string) error {
	have := shapeNames[a.node.shape]
	if a.node.shape == scalar {
		have = quoteShort(a.node.raw)
	}
	return a.At(errors.New(what+" must be "+want+", not "+have), hint)
}

// SuggestName returns a hint with the known name that is most similar to name, and the known names
// if they are few.
func SuggestName(name string, known []string) string { return suggestName(name, known) }

// SuggestNear returns a hint with the known name that is most similar to name, or "".
func SuggestNear(name string, known []string) string { return suggestNear(name, known) }

// JSON returns the value as JSON, with the fields of mappings in the order of the file and numbers
// as they are spelled. A value that is neither JSON nor text is an error.
func (a Any) JSON() ([]byte, error) { return a.appendJSON(nil) }

func (a Any) appendJSON(to []byte) ([]byte, error) {
	var err error
	switch a.node.shape {
	case null:
		return append(to, "null"...), nil
	case sequence:
		to = append(to, '[')
		for i, item := range a.node.items {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = a.child(item).appendJSON(to); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case mapping:
		to = append(to, '{')
		for i, e := range a.node.entries {
			if i > 0 {
				to = append(to, ',')
			}
			to = append(appendText(to, e.key), ':')
			if to, err = a.child(e.value).appendJSON(to); err != nil {
				return nil, err
			}
		}
		return append(to, '}'), nil
	}
	if !a.node.typed {
		return appendText(to, a.node.text), nil
	}
	if !json.Valid([]byte(a.node.text)) {
		return nil, a.At(errors.New(a.node.raw+" is neither JSON nor text"), "write true, false or a number in decimal digits, or put text in quotes")
	}
	return append(to, a.node.text...), nil
}

// appendText appends text as JSON, without the escapes that only HTML needs.
func appendText(to []byte, text string) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text always has a form
	return append(to, strings.TrimSuffix(b.String(), "\n")...)
}
