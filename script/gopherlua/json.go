package gopherlua

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
)

func (m *machine) jsonLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"encode": m.encode,
		"decode": m.decode,
		"array":  m.array,
		"isnull": m.isNull,
	}
}

func (m *machine) encode(l *lua.LState) int {
	m.document(l, l.Get(1))
	text, err := m.appendJSON(nil, l.Get(1))
	if err != nil {
		l.RaiseError("json.encode: %s", err.Error())
	}
	l.Push(lua.LString(text))
	return 1
}

// decode returns a document that lives on.
func (m *machine) decode(l *lua.LState) int {
	v, err := pure.Parse([]byte(l.CheckString(1)))
	if err != nil {
		l.RaiseError("json.decode: %s", err.Error())
	}
	l.Push(m.fromJSON(v, &life{}))
	return 1
}

// array marks a table as a list, so that it is [] when it is empty.
func (m *machine) array(l *lua.LState) int {
	if p := m.document(l, l.Get(1)); p != nil && p.container.Kind() == pure.Array {
		l.Push(l.Get(1))
		return 1
	}
	t := l.OptTable(1, nil)
	if t == nil {
		t = l.NewTable()
	}
	if t.Metatable != lua.LNil && !m.isMarked(t) {
		l.RaiseError("json.array: the table has a metatable")
	}
	t.Metatable = m.listMeta
	l.Push(t)
	return 1
}

// isNull tells whether a value is json.null, or whether a key holds null.
func (m *machine) isNull(l *lua.LState) int {
	v := l.Get(1)
	if l.GetTop() < 2 {
		l.Push(lua.LBool(v == m.null))
		return 1
	}
	null := false
	if p := m.document(l, v); p != nil {
		null = p.get(l.Get(2)).Kind == pure.Null
	} else {
		null = l.CheckTable(1).RawGet(l.Get(2)) == m.null
	}
	l.Push(lua.LBool(null))
	return 1
}
