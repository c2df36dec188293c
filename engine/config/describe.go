package config

import (
	"reflect"
	"slices"
	"strings"
)

// A Kind describes a kind of source or sink, or a language.
type Kind struct {
	Name   string
	Doc    string
	Fields []Field
}

// A Description is every key that a configuration may have, from the tags of the structs
// that the decoder fills.
type Description struct {
	Keys      []Field // of the configuration; pipelines, source, script and sink below it
	Sources   []Kind
	Sinks     []Kind
	Languages []Kind

	known Known
}

// Describe returns the description of configurations with these kinds.
func Describe(known Known, sources, sinks, languages []Kind) *Description {
	d := &Description{Sources: sources, Sinks: sinks, Languages: languages, known: known}
	d.Keys = d.withNames(Fields(topKeys{}))
	return d
}

// Pipeline returns the keys of a pipeline.
func (d *Description) Pipeline() []Field {
	i := slices.IndexFunc(d.Keys, func(f Field) bool { return f.Key == "pipelines" })
	return d.Keys[i].Fields
}

// withNames returns fields with the names of Known in place of "@types" and "@column_types".
func (d *Description) withNames(fields []Field) []Field {
	fields = slices.Clone(fields)
	for i, f := range fields {
		switch {
		case slices.Equal(f.Choices, []string{"@types"}):
			fields[i].Choices = d.known.Types
		case slices.Equal(f.Choices, []string{"@column_types"}):
			fields[i].Choices = d.known.ColumnTypes
		}
		fields[i].Fields = d.withNames(f.Fields)
	}
	return fields
}

// SinkKeys are the keys of one of several sinks beside its kind.
func SinkKeys() []Field { return Fields(sinkKeys{}) }

// HasDefault reports whether the default is a value, and not a description of it.
func (f Field) HasDefault() bool { return f.Default != "" && f.Default[0] != '(' }

// ExampleOf returns a valid value in YAML: the example of the key, or one that follows from
// its type and choices.
func (f Field) ExampleOf() string {
	switch {
	case f.Example != "" || len(f.Fields) > 0:
		return f.Example
	case f.Kind == "bool":
		return "true"
	}
	for _, choice := range f.Choices {
		if choice != f.Default {
			return choice
		}
	}
	return f.Default
}

// Prefixes of kinds.
const (
	listOf = "list of "
	mapTo  = "mapping to "
)

// Check returns the faults of a value in YAML for the key.
func (f Field) Check(text string) error {
	d, root := parse("value", f.Key+": "+text, func(name string) (string, bool) { return "value", !strings.HasSuffix(name, fileSuffix) })
	if root == nil || root.get(f.Key) == nil {
		return d.faults.sorted()
	}
	if n := root.get(f.Key).value; d.isChoice(n, f) {
		d.decode(n, reflect.New(f.typ).Elem(), f.Key, f.size)
	}
	return d.faults.sorted()
}
