package nodedb

import (
	"fmt"
	"iter"
	"strings"
)

// Limits of paths and values.
const (
	SubscriptsMax = 31
	NameMax       = 31       // bytes, without the ^
	PathMax       = 1900     // bytes of an encoded path
	ValueMax      = 64 << 20 // bytes
)

// A Path names a node: a name and up to 31 subscripts. Paths are immutable and comparable with ==.
// The zero Path names no node. A path built from invalid parts carries the error: Err returns it,
// and so does every operation on the path.
type Path struct {
	key string // encoded, see nodedb.h
	err error
}

// Name returns the path of a name: ^users is stored, users is a tree in the memory of a session.
func Name(name string) Path {
	key, err := keyOfName(name)
	return Path{key, err}
}

// ParsePath parses a path such as ^users(7,"name"). Inside a string a quote is doubled, and control
// characters are written as in "a"_$C(10).
func ParsePath(text string) (Path, error) {
	key, at, err := parseKey(text)
	if err != nil {
		return Path{}, fmt.Errorf("%w, at byte %d of %q", err, at+1, text)
	}
	if at < len(text) {
		return Path{}, invalid("read path", "unexpected %q after the path, at byte %d of %q", text[at:], at+1, text)
	}
	return Path{key: key}, nil
}

// At returns the path of a descendant. Each subscript is a string, a number or a Value. A string
// that spells a number in canonical form is that number: At("7") and At(7) are the same node.
func (p Path) At(subscripts ...any) Path {
	if p.err != nil {
		return p
	}
	if p.key == "" {
		return Path{err: invalid("make path", "the zero Path has no children: start with Name")}
	}
	key := []byte(p.key)
	for i, subscript := range subscripts {
		v, err := ValueOf(subscript)
		if err == nil && (v.kind == Absent || v.kind == Boolean) {
			err = invalid("make path", "subscript %d of %s is %v: use a string or a number", i+1, p, subscript)
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

// Err returns the reason why the path is invalid, or nil.
func (p Path) Err() error { return p.err }

// IsZero reports whether p is the zero Path.
func (p Path) IsZero() bool { return p == Path{} }

// String returns the path in the form that ParsePath reads.
func (p Path) String() string {
	if p.err != nil {
		return fmt.Sprintf("invalid path (%v)", p.err)
	}
	return keyText(p.key)
}

// MarshalText implements encoding.TextMarshaler.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), p.err }

// Compare returns -1, 0 or 1 if p sorts before, equals or sorts after other in the order of Walk. The
// zero Path is before all others.
func (p Path) Compare(other Path) int { return strings.Compare(p.key, other.key) }

// Name returns the name, including the ^ of a stored one.
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

// Parent returns the path without its last subscript; the zero Path for a name.
func (p Path) Parent() Path { return Path{key: p.key[:parentLen(p.key)], err: p.err} }

// parts yields the name, then the subscripts.
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
