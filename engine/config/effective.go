package config

import (
	"fmt"
	"strings"
)

// A Value is a value of the effective configuration.
type Value struct {
	Key    string  // "" of an item of a list
	Text   string  // of a scalar; secrets are masked
	Origin string  // of a scalar: FILE:LINE with the variables there, or default
	List   bool    // Values are items
	Values []Value // of a mapping or a list
}

// Effective returns the values that a configuration from a file has, with the origin of each:
// those in the file and the defaults of other keys. Defaults that depend on something, such
// as the machine, are left out.
func (c *Config) Effective(d *Description) []Value {
	if c.root == nil {
		return nil
	}
	e := effective{c.document, d}
	values := e.mapping(d.Keys, c.root)
	for i, v := range values {
		if v.Key == "data" {
			values[i].Text = c.Data
			if c.dataGiven {
				values[i].Origin = "--data"
			}
		}
	}
	return values
}

type effective struct {
	*document
	description *Description
}

// mapping returns the values of a mapping with these keys.
func (e effective) mapping(fields []Field, n *node) (values []Value) {
	for _, f := range fields {
		given := n.get(f.Key)
		if given == nil || given.value.shape == null {
			if v, ok := e.absent(f); ok {
				values = append(values, v)
			}
			continue
		}
		v := e.value(f, f.Kind, given.value)
		v.Key = f.Key
		values = append(values, v)
	}
	return values
}

// absent returns the value of a key that the file does not have.
func (e effective) absent(f Field) (v Value, ok bool) {
	switch {
	case f.Env != "":
		text, set := e.lookup(f.Env)
		return Value{Key: f.Key, Text: e.masked(f, &node{text: text}), Origin: "environment variable " + f.Env}, set && text != ""
	case f.HasDefault():
		return e.byDefault(f, f.Default), true
	case f.Kind == "bool":
		return e.byDefault(f, "false"), true
	case f.Kind != "mapping":
		return Value{}, false
	}
	for _, below := range f.Fields {
		if below.Required {
			return Value{}, false
		}
	}
	v = Value{Key: f.Key, Values: e.mapping(f.Fields, &node{})}
	return v, len(v.Values) > 0
}

// byDefault returns a default in YAML as a value.
func (e effective) byDefault(f Field, text string) Value {
	_, root := parse("default", f.Key+": "+text, e.lookup)
	v := e.value(f, f.Kind, root.get(f.Key).value)
	v.Key, v.Origin = f.Key, "default"
	for i := range v.Values {
		v.Values[i].Origin = v.Origin
	}
	return v
}

// value returns the value of a node.
func (e effective) value(f Field, kind string, n *node) Value {
	switch {
	case n.shape == sequence:
		v := Value{List: true}
		for _, item := range n.items {
			v.Values = append(v.Values, e.value(f, strings.TrimPrefix(kind, listOf), item))
		}
		return v
	case kind == "source":
		return Value{Values: e.kind(e.description.Sources, n)}
	case kind == "sink":
		return Value{Values: e.kind(e.description.Sinks, n)}
	case kind == "script":
		return Value{Values: e.script(n)}
	case strings.HasPrefix(kind, mapTo):
		var v Value
		for _, one := range n.entries {
			below := e.value(f, strings.TrimPrefix(kind, mapTo), one.value)
			if kind == mapTo+"sink" {
				below.Values = append(below.Values, e.mapping(SinkKeys(), one.value)...)
			} else if isTelling(one.key) {
				below.Text = maskedSecret
			}
			below.Key = one.key
			v.Values = append(v.Values, below)
		}
		return v
	case kind == "mapping":
		return Value{Values: e.mapping(f.Fields, n)}
	}
	return Value{Text: e.masked(f, n), Origin: e.origin(n)}
}

// kind returns the one kind below source or sink, with its settings.
func (e effective) kind(kinds []Kind, n *node) (values []Value) {
	for _, k := range kinds {
		if given := n.get(k.Name); given != nil {
			values = append(values, Value{Key: k.Name, Values: e.mapping(k.Fields, given.value)})
		}
	}
	return values
}

// script returns a script as a mapping, with the code below its language.
func (e effective) script(n *node) []Value {
	code := func(language string, n *node) Value {
		return Value{Key: language, Text: e.masked(Field{}, n), Origin: e.origin(n)}
	}
	if n.shape == scalar {
		language := orElse(e.description.known.Languages...)
		return append([]Value{code(language, n)}, e.mapping(Fields(ScriptSettings{}), &node{})...)
	}
	var values []Value
	for _, language := range e.description.known.Languages {
		if given := n.get(language); given != nil {
			values = append(values, code(language, given.value))
		}
	}
	return append(values, e.mapping(Fields(ScriptSettings{}), n)...)
}

// origin returns the line of a scalar, and the origin of its variables.
func (e effective) origin(n *node) string {
	parts := []string{fmt.Sprintf("%s:%d", e.file, n.at.line)}
	for _, raw := range variable.FindAllString(n.raw, -1) {
		if _, from, err := (variableUse{raw: raw}).resolve(e.lookup); err == nil && from.text != "" {
			parts = append(parts, from.text)
		}
	}
	return strings.Join(parts, ", ")
}

// masked returns the text of a scalar without secrets: the values of secret keys and of
// variables with telling names, from files, or in the user part of a URL.
func (e effective) masked(f Field, n *node) string {
	switch {
	case n.text == "":
		return ""
	case f.Secret:
		return maskedSecret
	}
	text := n.text
	for _, span := range variable.FindAllStringIndex(n.raw, -1) {
		use := variableUse{raw: n.raw[span[0]:span[1]]}
		value, from, err := use.resolve(e.lookup)
		if err != nil || value == "" || use.raw == "$$" {
			continue
		}
		if isTelling(use.raw) || from.isFile || inUserinfo(n.raw, span) {
			text = strings.ReplaceAll(text, value, maskedSecret)
		}
	}
	text = e.mask(text)
	for _, found := range secretsIn(text) {
		text = strings.ReplaceAll(text, found, maskedSecret)
	}
	return text
}

// inUserinfo reports whether a part of a text is between :// and @.
func inUserinfo(text string, span []int) bool {
	begin := strings.LastIndex(text[:span[0]], "://")
	return begin >= 0 && !strings.ContainsAny(text[begin+len("://"):span[0]], "/@ \n") &&
		strings.Contains(strings.SplitN(text[span[1]:], "\n", 2)[0], "@")
}
