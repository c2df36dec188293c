package pure

import (
	"errors"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/internal/document/report"
)

// A Kind is the kind of a value.
type Kind uint8

const (
	Missing Kind = iota
	Null
	False
	True
	Number  // Num, exactly
	Big     // Text is a number that a double cannot represent
	String  // Text, without quotes and escapes
	Object  // Container
	Array   // Container
	Foreign // Foreign
)

// A Value is read from a document or written to one.
type Value struct {
	Kind      Kind
	Num       float64
	Text      string
	Container *Container
	Foreign   Encoder
}

// An Encoder is a foreign value in a document. Each encoding of the document calls it for its JSON.
type Encoder interface {
	AppendJSON(out []byte) ([]byte, error)
}

// Errors of writes.
var (
	ErrNoIndex  = errors.New("an array can be written from 1 to one past its end")
	ErrIsArray  = errors.New("an array has no keys")
	ErrIsObject = errors.New("an object has no list part")
	ErrTooDeep  = fmt.Errorf("the document is nested deeper than %d", report.MaxDepth)
)

// A KeyError adds the path within a written value to an error.
type KeyError struct {
	Path []string // outermost key first
	Err  error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("field %q: %v", strings.Join(e.Path, "."), e.Err)
}

func (e *KeyError) Unwrap() error { return e.Err }

// Within adds to err the key in which it occurred.
func Within(key string, err error) error {
	var inner *KeyError
	if errors.As(err, &inner) {
		return &KeyError{Path: append([]string{key}, inner.Path...), Err: inner.Err}
	}
	return &KeyError{Path: []string{key}, Err: err}
}

// scalar decodes a node that is not a container.
func (d *Document) scalar(n *node) Value {
	text := d.text[n.start:n.end]
	switch n.kind {
	case Number:
		spelled := string(text)
		if x, ok := Exact(spelled); ok {
			return Value{Kind: Number, Num: x}
		}
		return Value{Kind: Big, Text: spelled}
	case String:
		return Value{Kind: String, Text: plainText(text[1:len(text)-1], n.escaped)}
	}
	return Value{Kind: n.kind}
}

func plainText(text []byte, escaped bool) string {
	if !escaped {
		return string(text)
	}
	return string(unescape(make([]byte, 0, len(text)), text))
}
