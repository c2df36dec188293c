package redis

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/perigeedb/perigee/internal/resp"
)

// A streamEntry parses the entries of a stream.
type streamEntry struct {
	id, name, value []byte
	fieldHeader     []byte // of the entry before: the bytes between its ID and the size of its document
	doc             []byte // made of several fields
	missing         bool   // the entry has not the wanted field: the document says so
	left            int    // bytes of the document that are still on the connection, or -1
}

// readSize reads up to the document and returns its size. The document is the value of
// the wanted field, or of the only one; otherwise it is an object of all fields. An entry
// without the wanted field becomes a text that says so, which is not JSON and becomes a
// dead letter.
func (e *streamEntry) readSize(c *resp.Conn, wanted string) (int, error) {
	if e.parseBuffered(c, wanted) {
		return e.left, nil
	}
	if _, err := c.ReadLength('*'); err != nil {
		return 0, err
	}
	size, err := c.ReadLength('$')
	if err != nil {
		return 0, err
	}
	if e.id, err = c.AppendBody(e.id[:0], size); err != nil {
		return 0, err
	}
	parts, err := c.ReadLength('*')
	if err != nil {
		return 0, err
	}
	if parts != 2 {
		return e.buildDocument(c, parts/2, wanted, false)
	}
	if err := e.readName(c); err != nil {
		return 0, err
	}
	if wanted != "" && string(e.name) != wanted {
		return e.buildDocument(c, 1, wanted, true)
	}
	e.left, err = c.ReadLength('$')
	return e.left, err
}

// parseBuffered parses an entry whose only field is the wanted one, if it is buffered up
// to the document. That is nearly always so, and takes half the time. Nearly always the
// name of the field is that of the entry before.
func (e *streamEntry) parseBuffered(c *resp.Conn, wanted string) bool {
	_, b, ok := resp.ParseLength(c.Buffered(), '*')
	if !ok {
		return false
	}
	id, b, ok := parseString(b)
	if !ok {
		return false
	}
	if b, ok = e.parseField(b, wanted); !ok {
		return false
	}
	size, b, ok := resp.ParseLength(b, '$')
	if !ok {
		return false
	}
	e.id, e.left = append(e.id[:0], id...), size
	c.SetBuffered(b)
	return true
}

// parseField returns what follows the name of the only field, if it is the wanted one.
func (e *streamEntry) parseField(b []byte, wanted string) (rest []byte, ok bool) {
	if rest, ok = bytes.CutPrefix(b, e.fieldHeader); ok && len(e.fieldHeader) > 0 {
		return rest, true
	}
	parts, rest, ok := resp.ParseLength(b, '*')
	if !ok || parts != 2 {
		return nil, false
	}
	name, rest, ok := parseString(rest)
	if !ok || wanted != "" && string(name) != wanted {
		return nil, false
	}
	e.fieldHeader = append(e.fieldHeader[:0], b[:len(b)-len(rest)]...)
	return rest, true
}

// parseString parses a buffered string, and returns what follows it.
func parseString(b []byte) (text, rest []byte, ok bool) {
	n, b, ok := resp.ParseLength(b, '$')
	if !ok || len(b) < n+2 {
		return nil, nil, false
	}
	return b[:n], b[n+2:], true
}

func (e *streamEntry) readName(c *resp.Conn) error {
	size, err := c.ReadLength('$')
	if err == nil {
		e.name, err = c.AppendBody(e.name[:0], size)
	}
	return err
}

// buildDocument reads fields and makes an object of them. named says that the name of the
// first was already read.
func (e *streamEntry) buildDocument(c *resp.Conn, fields int, wanted string, named bool) (int, error) {
	e.left, e.missing = -1, false
	e.doc = append(e.doc[:0], '{')
	var found []byte
	for i := range fields {
		if !named || i > 0 {
			if err := e.readName(c); err != nil {
				return 0, err
			}
		}
		size, err := c.ReadLength('$')
		if err != nil {
			return 0, err
		}
		if e.value, err = c.AppendBody(e.value[:0], size); err != nil {
			return 0, err
		}
		if wanted != "" && string(e.name) == wanted {
			found = append([]byte{}, e.value...)
		}
		if i > 0 {
			e.doc = append(e.doc, ',')
		}
		e.doc = appendJSON(append(appendJSON(e.doc, e.name), ':'), e.value)
	}
	e.doc = append(e.doc, '}')
	switch {
	case wanted == "":
	case found != nil:
		e.doc = append(e.doc[:0], found...)
	default:
		e.missing = true
		e.doc = fmt.Appendf(nil, "entry %s has no field %q: %s", e.id, wanted, e.doc)
	}
	return len(e.doc), nil
}

// appendDocument appends the document to dst.
func (e *streamEntry) appendDocument(c *resp.Conn, dst []byte) ([]byte, error) {
	if e.left >= 0 {
		return c.AppendBody(dst, e.left)
	}
	return append(dst, e.doc...), nil
}

// appendJSON appends text as a JSON string. It replaces invalid UTF-8.
func appendJSON(dst, text []byte) []byte {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\ufffd"))
	}
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			if i := strings.IndexByte("\b\t\n\f\r", c); i >= 0 {
				dst = append(dst, '\\', "btnfr"[i])
			} else {
				dst = append(dst, `\u00`...)
				dst = append(dst, digits[c>>4], digits[c&15])
			}
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
