package gopherlua

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// A table is a Lua table in a document. It implements pure.Encoder.
type table struct {
	machine *machine
	table   *lua.LTable
}

func (t *table) AppendJSON(out []byte) ([]byte, error) {
	m := t.machine
	if slices.Contains(m.writing, t.table) {
		return out, fmt.Errorf("a table that contains itself cannot be written as JSON: there is a cycle")
	}
	if len(m.writing) == nestingMax {
		return out, fmt.Errorf("tables nested deeper than %d cannot be written as JSON", nestingMax)
	}
	m.writing = append(m.writing, t.table)
	defer func() { m.writing = m.writing[:len(m.writing)-1] }()
	shape, err := m.shapeOf(t.table)
	if err != nil {
		return out, err
	}
	if shape.isList {
		return t.appendList(out, shape.length)
	}
	return t.appendObject(out, shape.keys)
}

// nestingMax bounds how deep tables may be inside each other.
const nestingMax = 512

func (t *table) appendList(out []byte, length int) ([]byte, error) {
	out = append(out, '[')
	for i := 1; i <= length; i++ {
		if i > 1 {
			out = append(out, ',')
		}
		var err error
		if out, err = t.machine.appendJSON(out, t.table.RawGetInt(i)); err != nil {
			return out, pure.Within(strconv.Itoa(i), err)
		}
	}
	return append(out, ']'), nil
}

func (t *table) appendObject(out []byte, keys []string) ([]byte, error) {
	slices.Sort(keys)
	out = append(out, '{')
	for i, key := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		if !utf8.ValidString(key) {
			return out, fmt.Errorf("the key %q is not UTF-8", clip(key))
		}
		out = append(pure.AppendString(out, key), ':')
		var err error
		if out, err = t.machine.appendJSON(out, t.table.RawGetString(key)); err != nil {
			return out, pure.Within(key, err)
		}
	}
	return append(out, '}'), nil
}

// A shape is what a table is as JSON.
type shape struct {
	isList bool
	length int
	keys   []string
}

// Holes in a list are nulls as long as it is this short, or half full.
const shortList = 10

// shapeOf decides whether a table is a list or an object.
func (m *machine) shapeOf(t *lua.LTable) (shape, error) {
	var s shape
	var fault error
	count := 0
	t.ForEach(func(key, _ lua.LValue) {
		switch key := key.(type) {
		case lua.LString:
			s.keys = append(s.keys, string(key))
		case lua.LNumber:
			if i := int(key); i > 0 && lua.LNumber(i) == key {
				s.length = max(s.length, i)
				count++
			} else if fault == nil {
				fault = fmt.Errorf("a table with the key %s is neither a list nor an object", key)
			}
		default:
			if fault == nil {
				fault = fmt.Errorf("a table with a key that is a %s is neither a list nor an object", key.Type())
			}
		}
	})
	s.isList = m.isMarked(t) || count > 0
	switch {
	case fault != nil:
	case s.isList && len(s.keys) > 0:
		fault = fmt.Errorf("a list with the key %q is neither a list nor an object", s.keys[0])
	case s.length > shortList && s.length > 2*count:
		fault = fmt.Errorf("a list with %d entries up to index %d is too sparse for an array", count, s.length)
	}
	return s, fault
}

// isMarked tells whether json.array made or marked t.
func (m *machine) isMarked(t *lua.LTable) bool { return t.Metatable == m.listMeta }

func isEmpty(t *lua.LTable) bool {
	key, _ := t.Next(lua.LNil)
	return key == lua.LNil
}
