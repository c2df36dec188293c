package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
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
	broken  bool // a fault was added for it
	at      place
	typed   bool   // of a scalar: YAML reads it as a number, true or false, and not as text
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

// A document is a parsed file, with the faults found in it so far.
type document struct {
	file        string
	example     string // a minimal text, for hints
	lines       []string
	expressions []variableUse
	lookup      func(string) (string, bool)
	anchors     map[string]*node
	faults      Errors
	secrets     []string // literal values that errors must not show
}

// withoutFaults returns the document for faults of one value alone.
func (d *document) withoutFaults() *document {
	return &document{file: d.file, example: d.example, lines: d.lines, expressions: d.expressions, secrets: d.secrets}
}

// lineBreaks replaces every line break of YAML by a newline.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// parse reads the text of a configuration into nodes. The node is nil if the text is not YAML.
func parse(file, text string, lookup func(string) (string, bool)) (*document, *node) {
	d := &document{file: file, example: pipelineExample, lookup: lookup}
	return d, d.parse(text)
}

// parse reads the text into nodes. Without lookup it fills in no variables.
func (d *document) parse(text string) *node {
	text = lineBreaks.Replace(text)
	d.lines, d.anchors, d.secrets = strings.Split(text, "\n"), map[string]*node{}, secretsIn(text)
	masked, expressions, fault := maskVariables(text, d.lookup != nil)
	if fault != nil {
		d.addFault(place{fault.Line, fault.Column}, "", "%s", fault.Message)
		return nil
	}
	d.expressions = expressions
	tree, err := parser.ParseBytes([]byte(masked), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.addSyntaxFault(err)
		return nil
	}
	root := &node{at: place{1, 1}}
	for i, doc := range tree.Docs {
		switch {
		case doc.Body == nil:
		case i > 0:
			d.addFault(d.convertNode(doc.Body).at, "write all of it in one document, without ---", "a second document is not allowed")
		default:
			root = d.convertNode(doc.Body)
		}
	}
	return root
}

// indentHint is the hint for invalid YAML, which is nearly always a fault of indentation. An
// example follows it.
const indentHint = "keys of one mapping begin in the same column, and those below a key two spaces further:\n"

func (d *document) addSyntaxFault(err error) {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		d.addFault(place{}, "", "not YAML: %v", err)
		return
	}
	at := y.GetToken().Position
	hint := indentHint + d.example
	if at.Line >= 1 && at.Line <= len(d.lines) {
		line := d.lines[at.Line-1]
		if start := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(start, "\t") {
			d.addFault(place{at.Line, strings.IndexByte(start, '\t') + 1}, "indent with spaces: "+strings.ReplaceAll(start, "\t", "  ")+d.rawText(strings.TrimSpace(line)),
				"the line is indented with a tab, which YAML does not allow")
			return
		}
		if strings.TrimSpace(line) == "" {
			hint = ""
		}
	}
	d.addFault(place{at.Line, at.Column}, hint, "not YAML: %s", d.rawText(y.GetMessage()))
}

// convertNode converts a node of the YAML parser.
func (d *document) convertNode(y ast.Node) *node {
	at := placeOfToken(y)
	switch y := y.(type) {
	case ast.MapNode:
		return d.convertMapping(y, at)
	case *ast.SequenceNode:
		n := &node{shape: sequence, at: at}
		for _, item := range y.Values {
			n.items = append(n.items, d.convertNode(item))
		}
		return n
	case *ast.AnchorNode:
		n := d.convertNode(y.Value)
		d.anchors[y.Name.GetToken().Value] = n
		return n
	case *ast.AliasNode:
		if n := d.anchors[y.Value.GetToken().Value]; n != nil {
			return n
		}
		d.addFault(at, "declare it above, or quote a text that begins with *", "unknown anchor &%s", y.Value.GetToken().Value)
	case *ast.TagNode:
		d.addFault(at, "remove it, or quote a text that begins with !", "tags are not supported")
	case *ast.NullNode:
		return &node{at: at}
	case *ast.LiteralNode:
		return d.convertScalar(y.Value.GetToken().Value, at)
	case ast.ScalarNode:
		n := d.convertScalar(y.GetToken().Value, at)
		_, isText := y.(*ast.StringNode)
		n.typed = !isText || isNumber(y.GetToken())
		return n
	}
	return &node{at: at, broken: true}
}

// isNumber reports whether a scalar without quotes is a number that the YAML parser takes for
// text, because it has more than 64 bits.
func isNumber(t *token.Token) bool {
	return t.Type == token.StringType && strings.IndexFunc(t.Value, unicode.IsDigit) >= 0 && strings.Trim(t.Value, "-+.eE0123456789") == "" && json.Valid([]byte(t.Value))
}

func (d *document) convertMapping(y ast.MapNode, at place) *node {
	n := &node{shape: mapping, at: at}
	for it := y.MapRange(); it.Next(); {
		key := it.Key().GetToken()
		e := entry{key: d.rawText(key.Value), at: place{key.Position.Line, key.Position.Column}}
		if len(n.entries) == 0 {
			n.at = e.at
		}
		switch it.Key().(type) {
		case *ast.MergeKeyNode, *ast.MappingKeyNode:
			d.addFault(e.at, "write the keys out", "%q keys are not supported", e.key)
			continue
		}
		if first := n.get(e.key); first != nil {
			d.addFault(e.at, "remove one of them", "key %q is given twice, first on line %d", e.key, first.at.line)
			continue
		}
		e.value = d.convertNode(it.Value())
		n.entries = append(n.entries, e)
	}
	return n
}

func (d *document) convertScalar(masked string, at place) *node {
	n := &node{shape: scalar, at: at, raw: d.rawText(masked)}
	if d.lookup != nil && strings.Contains(masked, "${") {
		d.addFault(at, "close it with } on the same line, or write $$ for a dollar sign", "the variable after ${ is not closed")
		n.broken = true
	}
	n.text = unmask(masked, func(i int) string {
		x := d.expressions[i]
		value, err := x.evaluate(d.lookup)
		if err != nil {
			hint := ""
			if unset, ok := errors.AsType[*unsetError](err); ok {
				hint = fmt.Sprintf("set it, or write a default: ${%s:-default}", unset.name)
			} else if file, ok := errors.AsType[*valueFileError](err); ok {
				hint = fmt.Sprintf("set %s to the value, or %[1]s%s to the path of a file with the value", file.name, fileSuffix)
			}
			if strings.Contains(n.raw, "function") {
				hint = "in code, write $" + x.raw + " for " + x.raw
			}
			d.addFault(x.at, hint, "%v", err)
			n.broken = true
		}
		return value
	})
	return n
}

// rawText replaces placeholders by the original variables.
func (d *document) rawText(masked string) string {
	return unmask(masked, func(i int) string { return d.expressions[i].raw })
}

// addFault adds an error. It quotes the original source line, with the names of variables.
func (d *document) addFault(at place, hint, format string, args ...any) {
	e := &Error{File: d.file, Line: at.line, Column: at.column, Message: d.mask(fmt.Sprintf(format, args...)), Hint: d.mask(hint)}
	if line := d.lineAt(at.line); line != nil {
		e.Source = d.mask(*line)
	}
	d.faults = append(d.faults, e)
}

// hide takes the text of a scalar out of the lines that errors quote: it may have a secret that no
// pattern finds. The name of a variable is shown.
func (d *document) hide(n *node) {
	line := d.lineAt(n.at.line)
	if m := inside.FindStringSubmatch(n.raw); line == nil || m != nil && m[2] == "" {
		return
	}
	before := firstRunes(*line, n.at.column-1)
	if rest := (*line)[len(before):]; strings.Contains(rest, n.raw) {
		*line = before + strings.Replace(rest, n.raw, maskedSecret, 1)
	} else { // it is written with escapes, or on several lines
		*line = ""
	}
	for _, e := range d.faults {
		if e.Line == n.at.line {
			e.Source = d.mask(*line)
		}
	}
}

// lineAt returns line n, counted from 1, or nil.
func (d *document) lineAt(n int) *string {
	if n < 1 || n > len(d.lines) {
		return nil
	}
	return &d.lines[n-1]
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
