package nodedb

import (
	"fmt"
	"iter"
)

// Limits of paths and values.
const (
	SubscriptsMax = 31
	NameMax       = 31       // bytes, without the ^
	PathMax       = 1900     // bytes of an encoded path
	ValueMax      = 64 << 20 // bytes
)

// A Path names a node: a name and up to 31 subscripts. Paths are immutable and can be compared
// with ==. The zero Path names nothing. A path that was made from something invalid carries the
// error, which every operation on it returns; Err returns it sooner.
type Path struct {
	key string // encoded, see nodedb.h
	err error
}

// Name returns the path of a name: ^users is stored, users is a tree in the memory of a session.
func Name(name string) Path {
	key, err := keyOfName(name)
	return Path{key, err}
}

// ParsePath returns the path that a text spells, as in ^users(7,"name"). A quote inside a string is
// doubled, and $C(10) is the byte 10, joined with _ as in "a"_$C(10).
func ParsePath(text string) (Path, error) {
	key, at, err := parseKey(text)
	if err != nil {
		return Path{}, fmt.Errorf("%w, at byte %d of %q", err, at+1, text)
	}
	if at < len(text) {
		return Path{}, invalid("read path", "nothing may follow the path, but at byte %d of %q there is %q", at+1, text, text[at:])
	}
	return Path{key: key}, nil
}

// At returns the path of a descendant. The subscripts are strings, numbers or Values. A string
// that spells a number in its canonical form is that number: At("7") and At(7) are one node.
func (p Path) At(subscripts ...any) Path {
	if p.err != nil {
		return p
	}
	if p.key == "" {
		return Path{err: invalid("make path", "the zero Path has no children: begin with Name")}
	}
	key := []byte(p.key)
	for i, subscript := range subscripts {
		v, err := ValueOf(subscript)
		if err == nil && (v.kind == Absent || v.kind == Boolean) {
			err = invalid("make path", "subscript %d of %s is %v: a subscript is a string or a number", i+1, p, subscript)
		}
		if err == nil {
			key, err = appendKey(key, v)
		}
		if err != nil {
			return Path{err: err}
		}
	}
	return Path{key: string(key)}
}

// Err returns why the path is invalid, or nil.
func (p Path) Err() error { return p.err }

// IsZero reports whether p names nothing.
func (p Path) IsZero() bool { return p == Path{} }

// String returns the path as ParsePath reads it.
func (p Path) String() string {
	if p.err != nil {
		return fmt.Sprintf("invalid path (%v)", p.err)
	}
	return keyText(p.key)
}

// MarshalText implements encoding.TextMarshaler.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), p.err }

// Name returns the name, with its ^ if it has one.
func (p Path) Name() string {
	for v := range p.parts() {
		return v.text
	}
	return ""
}

// Subscripts returns the subscripts.
func (p Path) Subscripts() []Value {
	var all []Value
	name := true
	for v := range p.parts() {
		if !name {
			all = append(all, v)
		}
		name = false
	}
	return all
}

// Parent returns the path without its last subscript, and the zero Path for a name.
func (p Path) Parent() Path { return Path{key: p.key[:parentLen(p.key)], err: p.err} }

// parts yields the name and the subscripts.
func (p Path) parts() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for at := 0; ; {
			v, next := decodeKey(p.key, at)
			if next == 0 || !yield(v) {
				return
			}
			at = next
		}
	}
}
