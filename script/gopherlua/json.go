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
		"empty":  m.empty,
		"isnull": m.isNull,
	}
}

func (m *machine) encode(l *lua.LState) int {
	m.document(l, l.Get(1))
	text, err := m.appendJSON(nil, l.Get(1))
	if err == nil {
		err = pure.CheckDepth(text)
	}
	if err != nil {
		l.RaiseError("json.encode: %s", err.Error())
	}
	l.Push(lua.LString(text))
	return 1
}

// decode returns a document whose life does not end, or nil and an error.
func (m *machine) decode(l *lua.LState) int {
	v, err := pure.Parse([]byte(l.CheckString(1)))
	if err != nil {
		l.Push(lua.LNil)
		l.Push(lua.LString(err.Error()))
		return 2
	}
	l.Push(m.fromJSON(v, &life{}))
	return 1
}

// array marks a table as an array, so that an empty one is [] in JSON. Other values,
// and tables that are objects, become elements of a new array. So does an empty array
// that array returned before, as in kelindar/lua.
func (m *machine) array(l *lua.LState) int {
	t, isTable := l.Get(1).(*lua.LTable)
	p := m.document(l, l.Get(1))
	switch {
	case l.GetTop() > 1:
	case p != nil && p.container.Kind() == pure.Array:
		return 1
	case isTable && (t.MaxN() > 0 || isEmpty(t) && !m.isMarked(t)):
		if t.Metatable != lua.LNil && !m.isMarked(t) {
			l.RaiseError("json.array: the table has a metatable")
		}
		t.Metatable = m.listMeta
		return 1
	}
	list := m.emptyList()
	for i := 1; i <= l.GetTop(); i++ {
		list.RawSetInt(i, l.Get(i))
	}
	l.Push(list)
	return 1
}

func (m *machine) empty(l *lua.LState) int {
	l.Push(m.emptyList())
	return 1
}

func (m *machine) emptyList() *lua.LTable {
	t := m.state.NewTable()
	t.Metatable = m.listMeta
	return t
}

// isNull reports whether a value is json.null, or whether a key holds null.
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
