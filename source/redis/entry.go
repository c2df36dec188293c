package redis

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/perigeedb/perigee/internal/resp"
)

// An entry is one of a stream, as it comes.
type entry struct {
	id, name, value []byte
	between         []byte // between the ID and the size of the document, in the entry before
	doc             []byte // made of several fields
	left            int    // bytes of the document that are still on the connection, or -1
}

// read reads up to the document, and returns its size. The document is the value
// of the field that is asked for, or of the only one; otherwise it is an object of
// all fields. An entry without the field becomes text that says so: it is no
// JSON, and ends as a dead letter.
func (e *entry) read(c *resp.Conn, wanted string) (int, error) {
	if e.readAhead(c, wanted) {
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
		return e.gather(c, parts/2, wanted, false)
	}
	if err := e.readName(c); err != nil {
		return 0, err
	}
	if wanted != "" && string(e.name) != wanted {
		return e.gather(c, 1, wanted, true)
	}
	e.left, err = c.ReadLength('$')
	return e.left, err
}

// readAhead reads an entry with the only field that is wanted, if its head has
// arrived as a whole: that is nearly always so, and takes half the time. Nearly
// always it also has the field of the one before.
func (e *entry) readAhead(c *resp.Conn, wanted string) bool {
	_, b, ok := resp.ParseLength(c.Buffered(), '*')
	if !ok {
		return false
	}
	id, b, ok := textAhead(b)
	if !ok {
		return false
	}
	if b, ok = e.fieldAhead(b, wanted); !ok {
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

// fieldAhead returns what follows the name of the only field, if it is wanted.
func (e *entry) fieldAhead(b []byte, wanted string) (rest []byte, ok bool) {
	if rest, ok = bytes.CutPrefix(b, e.between); ok && len(e.between) > 0 {
		return rest, true
	}
	parts, rest, ok := resp.ParseLength(b, '*')
	if !ok || parts != 2 {
		return nil, false
	}
	name, rest, ok := textAhead(rest)
	if !ok || wanted != "" && string(name) != wanted {
		return nil, false
	}
	e.between = append(e.between[:0], b[:len(b)-len(rest)]...)
	return rest, true
}

// textAhead is a short string in what is ahead, and what follows it.
func textAhead(b []byte) (text, rest []byte, ok bool) {
	n, b, ok := resp.ParseLength(b, '$')
	if !ok || len(b) < n+2 {
		return nil, nil, false
	}
	return b[:n], b[n+2:], true
}

func (e *entry) readName(c *resp.Conn) error {
	size, err := c.ReadLength('$')
	if err == nil {
		e.name, err = c.AppendBody(e.name[:0], size)
	}
	return err
}

// gather reads fields and makes a document of them; the name of the first may
// have been read.
func (e *entry) gather(c *resp.Conn, fields int, wanted string, named bool) (int, error) {
	e.left = -1
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
		e.doc = fmt.Appendf(nil, "entry %s has no field %q: %s", e.id, wanted, e.doc)
	}
	return len(e.doc), nil
}

// take appends the document.
func (e *entry) take(c *resp.Conn, dst []byte) ([]byte, error) {
	if e.left >= 0 {
		return c.AppendBody(dst, e.left)
	}
	return append(dst, e.doc...), nil
}

// appendJSON appends text as a JSON string; what is no UTF-8 in it is replaced.
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
