package gopherlua

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// tableLibrary works on tables and on arrays of documents.
func (m *machine) tableLibrary(standard *lua.LTable) map[string]lua.LGFunction {
	own := func(name string, onArray func(*lua.LState, *pure.Container, *life) int) lua.LGFunction {
		original := standard.RawGetString(name)
		return func(l *lua.LState) int {
			p := m.document(l, l.Get(1))
			if p == nil {
				m.checkOpen(l, l.Get(1))
				if name == "insert" {
					checkPosition(l)
				}
				return callStandard(l, original)
			}
			if p.container.Kind() != pure.Array {
				l.RaiseError("table.%s wants an array, but the value is an object", name)
			}
			return onArray(l, p.container, p.life)
		}
	}
	return map[string]lua.LGFunction{
		"concat": m.concat,
		"getn":   own("getn", length),
		"maxn":   own("maxn", length),
		"insert": own("insert", m.insert),
		"remove": own("remove", m.remove),
		"sort":   own("sort", m.sort),
	}
}

// checkOpen refuses tables that are read-only: the originals write past metatables.
func (m *machine) checkOpen(l *lua.LState, v lua.LValue) {
	t, ok := v.(*lua.LTable)
	if !ok {
		return
	}
	if meta, ok := t.Metatable.(*lua.LTable); ok && meta != m.listMeta && meta.RawGetString("__metatable") == lua.LFalse {
		l.RaiseError("the table is read-only")
	}
}

// checkPosition refuses to insert into a table far beyond its end, as LuaJIT's sandbox does.
func checkPosition(l *lua.LState) {
	t, ok := l.Get(1).(*lua.LTable)
	if !ok || l.GetTop() != 3 {
		return
	}
	if at := l.CheckNumber(2); !(at >= 1 && at <= lua.LNumber(t.Len()+1)) {
		l.ArgError(2, "position out of bounds")
	}
}

func length(l *lua.LState, c *pure.Container, _ *life) int {
	l.Push(lua.LNumber(c.Len()))
	return 1
}

func (m *machine) insert(l *lua.LState, c *pure.Container, _ *life) int {
	at, v := lua.LNumber(c.Len()+1), l.Get(2)
	if l.GetTop() > 2 {
		at, v = l.CheckNumber(2), l.Get(3)
	}
	value, err := m.toJSON(v)
	if err == nil {
		err = c.Insert(float64(at), value)
	}
	if err != nil {
		l.RaiseError("element %s: %s", at, err.Error())
	}
	return 0
}

func (m *machine) remove(l *lua.LState, c *pure.Container, of *life) int {
	at := float64(l.OptNumber(2, lua.LNumber(c.Len())))
	v := m.fromJSON(c.At(at), of)
	if at >= 1 && at <= float64(c.Len()) {
		if err := c.RemoveAt(at); err != nil {
			l.RaiseError("%s", err.Error())
		}
	}
	l.Push(v)
	return 1
}

// sort moves the elements without writing them again.
func (m *machine) sort(l *lua.LState, c *pure.Container, of *life) int {
	values, order := make([]lua.LValue, c.Len()), make([]int, c.Len())
	for i := range values {
		values[i], order[i] = m.fromJSON(c.At(float64(i+1)), of), i
	}
	less := l.LessThan
	if l.GetTop() > 1 {
		f := l.CheckFunction(2)
		less = func(a, b lua.LValue) bool {
			l.Push(f)
			l.Push(a)
			l.Push(b)
			l.Call(2, 1)
			defer l.Pop(1)
			return lua.LVAsBool(l.Get(-1))
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case less(values[a], values[b]):
			return -1
		case less(values[b], values[a]):
			return 1
		}
		return 0
	})
	if len(order) > 0 {
		c.Permute(order)
	}
	return 0
}

// sequence is how concat and unpack read a table or an array.
func (m *machine) sequence(l *lua.LState) (get func(i int) lua.LValue, length int) {
	if p := m.document(l, l.Get(1)); p != nil {
		return func(i int) lua.LValue { return m.fromJSON(p.container.At(float64(i)), p.life) }, p.container.Len()
	}
	t := l.CheckTable(1)
	return t.RawGetInt, t.Len()
}

func (m *machine) concat(l *lua.LState) int {
	get, length := m.sequence(l)
	separator := l.OptString(2, "")
	first, last := l.OptInt(3, 1), l.OptInt(4, length)
	var out strings.Builder
	for i := first; i <= last; i++ {
		v := get(i)
		if _, isBig := bigOf(v); !isBig && !lua.LVCanConvToString(v) {
			l.RaiseError("invalid value (a %s) at index %d in table for 'concat'", v.Type(), i)
		}
		out.WriteString(l.ToStringMeta(v).String())
		if i < last {
			out.WriteString(separator)
		}
		m.checkSize(l, out.Len())
	}
	l.Push(lua.LString(out.String()))
	return 1
}

// unpackMax bounds how many values a call can return.
const unpackMax = 100_000

func (m *machine) unpack(l *lua.LState) int {
	get, length := m.sequence(l)
	first, last := l.OptInt(2, 1), l.OptInt(3, length)
	if last-first >= unpackMax {
		l.RaiseError("too many values to unpack")
	}
	n := 0
	for i := first; i <= last; i++ {
		l.Push(get(i))
		n++
	}
	return n
}
