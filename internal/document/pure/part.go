package pure

import "github.com/perigeedb/perigee/event"

// A Part is one value of an indexed document, as it is spelled in the text. It is valid until the
// next Index.
type Part struct {
	doc  *Document
	node int
}

// Whole returns the object that Index has read.
func (d *Document) Whole() Part { return Part{d, 0} }

// Kind returns the kind of the value. It is Number for a number of any size.
func (p Part) Kind() Kind { return p.doc.node[p.node].kind }

// First returns the first field or element. ok is false if the value has none.
func (p Part) First() (first Part, ok bool) {
	return Part{p.doc, p.node + 1}, p.doc.node[p.node].count > 0
}

// After returns the field or element of a container after p. ok is false if p is the last.
func (p Part) After(container Part) (next Part, ok bool) {
	next = Part{p.doc, p.doc.node[p.node].next}
	return next, next.node < container.doc.node[container.node].next
}

// Len returns the number of fields or elements.
func (p Part) Len() int { return p.doc.node[p.node].count }

// Key returns the key of a field, without escapes. It is a part of the document's text if it has
// none there.
func (p Part) Key() []byte {
	n := &p.doc.node[p.node]
	return unescaped(p.doc.text[n.key[0]:n.key[1]], n.keyEscaped)
}

// Text returns the value as it is spelled, and a string without quotes and escapes. It is a part
// of the document's text unless a string has escapes there.
func (p Part) Text() []byte {
	n := &p.doc.node[p.node]
	if n.kind == String {
		return unescaped(p.doc.text[n.start+1:n.end-1], n.escaped)
	}
	return p.doc.text[n.start:n.end]
}

func unescaped(text []byte, escaped bool) []byte {
	if !escaped {
		return text
	}
	return unescape(make([]byte, 0, len(text)), text)
}

// IsTime reports whether a column of type timestamp accepts a text.
func IsTime(text string) bool {
	_, misfit := clock(text, event.Timestamp)
	return misfit == 0
}
