// Package pure reads and writes JSON documents in Go alone. It does what package
// document does in C, byte for byte, and is the model that the C is held to.
//
// A Document is a strict index over the bytes of one JSON object. Values are
// found when they are asked for; writes are recorded beside the text, and the
// encoder splices them in, so that what was not written leaves as it came. A
// Document, its Containers and an Extractor have one user at a time. Check is
// safe for all.
package pure

import "github.com/perigeedb/perigee/internal/document/report"

// Check tells whether doc is strict JSON and an object. An error is a
// *report.SyntaxError.
func Check(doc []byte) error {
	var d Document
	return d.Index(doc)
}

// A Document is one JSON object and what was written to it. Its zero value is
// ready for Index.
type Document struct {
	text []byte
	node []node
	root *Container
}

// Index reads text, which must stay unchanged for as long as the document is
// used. It forgets the document before. An error is a *report.SyntaxError.
func (d *Document) Index(text []byte) error {
	d.node, d.root = d.node[:0], nil
	p := parser{text: text, node: d.node}
	fault := p.document()
	d.text, d.node = p.text, p.node
	if fault != 0 {
		return &report.SyntaxError{Code: fault, Offset: p.at}
	}
	return nil
}

// Root returns the object that the document is.
func (d *Document) Root() *Container {
	if d.root == nil {
		d.root = &Container{doc: d}
	}
	return d.root
}

// Parse reads any JSON value, which it copies. An error is a *report.SyntaxError.
func Parse(text []byte) (Value, error) {
	d := &Document{}
	p := parser{text: append([]byte(nil), text...)}
	fault := p.anything()
	d.text, d.node = p.text, p.node
	if fault != 0 {
		return Value{}, &report.SyntaxError{Code: fault, Offset: p.at}
	}
	if kind := d.node[0].kind; kind == Object || kind == Array {
		return Value{Kind: kind, Container: d.Root()}, nil
	}
	return d.scalar(&d.node[0]), nil
}
