package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A place is a line and a column, both counted from 1, the column in characters.
type place struct{ line, column int }

type shape uint8

const (
	null shape = iota
	scalar
	sequence
	mapping
)

var shapeNames = [...]string{null: "nothing", scalar: "a value", sequence: "a list", mapping: "a mapping"}

// A node is one value of the file.
type node struct {
	shape   shape
	broken  bool // a fault is noted for it already
	at      place
	raw     string // of a scalar: as written, variables by name
	text    string // of a scalar: variables filled in
	items   []*node
	entries []entry
}

type entry struct {
	key   string
	at    place
	value *node
}

func (n *node) get(key string) *entry {
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i]
		}
	}
	return nil
}

// A document is a file that has been read, and the faults found in it so far.
type document struct {
	file        string
	lines       []string
	expressions []expression
	lookup      func(string) (string, bool)
	anchors     map[string]*node
	faults      Errors
}

// lineBreaks makes one of what YAML counts as the end of a line.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// parse reads the text into nodes. The node is nil when the text is not YAML.
func parse(file, text string, lookup func(string) (string, bool)) (*document, *node) {
	text = lineBreaks.Replace(text)
	d := &document{file: file, lines: strings.Split(text, "\n"), lookup: lookup, anchors: map[string]*node{}}
	masked, expressions, fault := mask(text)
	if fault != nil {
		d.fault(place{fault.Line, fault.Column}, "", "%s", fault.Message)
		return d, nil
	}
	d.expressions = expressions
	tree, err := parser.ParseBytes([]byte(masked), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return d, nil
	}
	root := &node{at: place{1, 1}}
	for i, doc := range tree.Docs {
		switch {
		case doc.Body == nil:
		case i > 0:
			d.fault(d.node(doc.Body).at, "put pipelines that belong together below one pipelines key", "a second document is not allowed")
		default:
			root = d.node(doc.Body)
		}
	}
	return d, root
}

func (d *document) syntax(err error) {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		d.fault(place{}, "", "not YAML: %v", err)
		return
	}
	at := y.GetToken().Position
	d.fault(place{at.Line, at.Column}, "", "not YAML: %s", d.rawText(y.GetMessage()))
}

// node turns a piece of YAML's tree into ours.
func (d *document) node(y ast.Node) *node {
	at := placeOfToken(y)
	switch y := y.(type) {
	case ast.MapNode:
		return d.mapping(y, at)
	case *ast.SequenceNode:
		n := &node{shape: sequence, at: at}
		for _, item := range y.Values {
			n.items = append(n.items, d.node(item))
		}
		return n
	case *ast.AnchorNode:
		n := d.node(y.Value)
		d.anchors[y.Name.GetToken().Value] = n
		return n
	case *ast.AliasNode:
		if n := d.anchors[y.Value.GetToken().Value]; n != nil {
			return n
		}
		d.fault(at, "", "no anchor &%s stands above", y.Value.GetToken().Value)
	case *ast.TagNode:
		d.fault(at, "", "tags are not supported")
	case *ast.NullNode:
		return &node{at: at}
	case *ast.LiteralNode:
		return d.scalar(y.Value.GetToken().Value, at)
	case ast.ScalarNode:
		return d.scalar(y.GetToken().Value, at)
	}
	return &node{at: at, broken: true}
}

func (d *document) mapping(y ast.MapNode, at place) *node {
	n := &node{shape: mapping, at: at}
	for it := y.MapRange(); it.Next(); {
		key := it.Key().GetToken()
		e := entry{key: d.rawText(key.Value), at: place{key.Position.Line, key.Position.Column}}
		if len(n.entries) == 0 {
			n.at = e.at
		}
		switch it.Key().(type) {
		case *ast.MergeKeyNode, *ast.MappingKeyNode:
			d.fault(e.at, "", "%q keys are not supported", e.key)
			continue
		}
		if first := n.get(e.key); first != nil {
			d.fault(e.at, "", "key %q is given twice, first on line %d", e.key, first.at.line)
			continue
		}
		e.value = d.node(it.Value())
		n.entries = append(n.entries, e)
	}
	return n
}

func (d *document) scalar(masked string, at place) *node {
	n := &node{shape: scalar, at: at, raw: d.rawText(masked)}
	if strings.Contains(masked, "${") {
		d.fault(at, "close it with } on the same line, or write $$ for a dollar sign", "a variable that begins with ${ has no end")
		n.broken = true
	}
	n.text = fill(masked, func(i int) string {
		x := d.expressions[i]
		value, err := x.value(d.lookup)
		if err != nil {
			hint := ""
			if strings.Contains(n.raw, "function") {
				hint = "in code, write $" + x.raw + " for " + x.raw
			}
			d.fault(x.at, hint, "%v", err)
			n.broken = true
		}
		return value
	})
	return n
}

// rawText puts the variables' names back where the masks stand.
func (d *document) rawText(masked string) string {
	return fill(masked, func(i int) string { return d.expressions[i].raw })
}

// fault notes an error. The source line is quoted as it stands in the file,
// which shows variables by name.
func (d *document) fault(at place, hint, format string, args ...any) {
	e := &Error{File: d.file, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...), Hint: hint}
	if at.line >= 1 && at.line <= len(d.lines) {
		e.Source = d.lines[at.line-1]
	}
	d.faults = append(d.faults, e)
}

func placeOfToken(n ast.Node) place {
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

func placeOf(text string, offset int) place {
	line := 1 + strings.Count(text[:offset], "\n")
	begin := strings.LastIndexByte(text[:offset], '\n') + 1
	return place{line, 1 + utf8.RuneCountInString(text[begin:offset])}
}

func errorAt(text string, offset int, message string) *Error {
	at := placeOf(text, offset)
	return &Error{Line: at.line, Column: at.column, Message: message}
}
