package pure

import (
	"strconv"

	"github.com/perigeedb/perigee/internal/document/report"
)

// Append appends the container as JSON: it copies the text and splices in the written parts. Its
// errors come from an Encoder.
func (c *Container) Append(out []byte) ([]byte, error) {
	n := &c.doc.node[c.node]
	switch {
	case !c.dirty:
		return append(out, c.doc.text[n.start:n.end]...), nil
	case c.listed:
		return c.appendListed(out)
	}
	return c.appendSpliced(out)
}

// CheckDepth returns ErrTooDeep if an encoded value is nested deeper than a document may be, which
// is possible even if its parts are not.
func CheckDepth(text []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inString = !inString
		case c == '\\' && inString:
			i++
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > report.MaxDepth {
				return ErrTooDeep
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// AppendValue appends any value as JSON.
func AppendValue(out []byte, v Value) ([]byte, error) {
	switch v.Kind {
	case False:
		return append(out, "false"...), nil
	case True:
		return append(out, "true"...), nil
	case Number:
		return AppendNumber(out, v.Num), nil
	case Big:
		return append(out, v.Text...), nil
	case String:
		return AppendString(out, v.Text), nil
	case Object, Array:
		return v.Container.Append(out)
	case Foreign:
		return v.Foreign.AppendJSON(out)
	}
	return append(out, "null"...), nil
}

func (c *Container) appendListed(out []byte) ([]byte, error) {
	out = append(out, '[')
	for i := range c.slots {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = c.appendSlot(out, &c.slots[i]); err != nil {
			return out, Within(strconv.Itoa(i+1), err)
		}
	}
	return append(out, ']'), nil
}

// appendSpliced keeps the text's white space: the space before a child belongs to the child, and
// the space after the last child is kept unless the container is empty.
func (c *Container) appendSpliced(out []byte) ([]byte, error) {
	text, n := c.doc.text, &c.doc.node[c.node]
	out = append(out, text[n.start])
	kept, before := 0, n.start+1
	for i := range c.slots[:c.text] {
		s := &c.slots[i]
		child := &c.doc.node[s.node]
		head := child.start
		if child.keyed {
			head = child.key[0] - 1
		}
		switch {
		case !s.removed:
			if kept == 0 && i > 0 {
				before = head
			}
			kept++
			out = append(out, text[before:child.start]...)
			var err error
			if out, err = c.appendSlot(out, s); err != nil {
				return out, Within(s.key, err)
			}
		case i == 0:
			out = append(out, text[before:head]...)
		}
		before = child.end
	}
	out, kept, err := c.appendAdded(out, kept)
	if err != nil {
		return out, err
	}
	if kept == 0 {
		before = n.end - 1
	}
	return append(out, text[before:n.end]...), nil
}

func (c *Container) appendAdded(out []byte, kept int) ([]byte, int, error) {
	for i := range c.slots[c.text:] {
		s := &c.slots[c.text+i]
		if s.removed {
			continue
		}
		if kept > 0 {
			out = append(out, ',')
		}
		kept++
		out = append(AppendString(out, s.key), ':')
		var err error
		if out, err = c.appendSlot(out, s); err != nil {
			return out, kept, Within(s.key, err)
		}
	}
	return out, kept, nil
}

func (c *Container) appendSlot(out []byte, s *slot) ([]byte, error) {
	switch {
	case s.written:
		return AppendValue(out, s.value)
	case s.open != nil:
		return s.open.Append(out)
	}
	n := &c.doc.node[s.node]
	return append(out, c.doc.text[n.start:n.end]...), nil
}
