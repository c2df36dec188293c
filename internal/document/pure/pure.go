// Package pure reads and writes JSON documents without cgo. It behaves exactly as package document,
// which is written in C; tests compare the two.
//
// A Document is a strict index over the bytes of one JSON object. Values are decoded when they are
// read. Writes are recorded separately from the text, and the encoder splices them in, so that
// unwritten parts keep their bytes. Only one goroutine at a time may use a Document with its
// Containers, or an Extractor. Check is safe for concurrent use.
package pure

import "github.com/perigeedb/perigee/internal/document/report"

// Check checks that doc is one object in strict JSON. An error is a *report.SyntaxError.
func Check(doc []byte) error {
	var d Document
	return d.Index(doc)
}

// A Checker is Check for many documents. Its zero value is ready for use. Only one goroutine at a
// time may use it.
type Checker struct{ doc Document }

// Check returns the documents that are not strict JSON objects. The error is always nil.
func (c *Checker) Check(data []byte, ends []uint32) (rejected []report.Rejected, _ error) {
	from := uint32(0)
	for row, end := range ends {
		if err := c.doc.Index(data[from:end]); err != nil {
			rejected = append(rejected, report.Rejected{Row: row, Column: -1, Reason: err.Error()})
		}
		from = end
	}
	return rejected, nil
}

// A Document is one JSON object, with the changes made to it. Its zero value is ready for Index.
type Document struct {
	text []byte
	node []node
	root *Container
}

// Index parses text, which must not change while the document is used, and replaces
// the previous document. An error is a *report.SyntaxError.
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

// Root returns the document's object.
func (d *Document) Root() *Container {
	if d.root == nil {
		d.root = &Container{doc: d}
	}
	return d.root
}

// Parse parses any JSON value and copies it. An error is a *report.SyntaxError.
func Parse(text []byte) (Value, error) {
	if len(text) > textMax {
		return Value{}, &report.SyntaxError{Code: report.TooLarge}
	}
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
