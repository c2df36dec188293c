package gopherlua

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// pairs skips nulls, because tables cannot hold nil.
func (m *machine) pairs(standard lua.LValue) lua.LGFunction {
	return func(l *lua.LState) int {
		p := m.document(l, l.Get(1))
		if p == nil {
			return callStandard(l, standard)
		}
		at := p.first()
		l.Push(l.NewFunction(func(l *lua.LState) int {
			m.document(l, l.Get(1))
			var key lua.LValue
			var v pure.Value
			if at, key, v = p.after(at); key == nil {
				l.Push(lua.LNil)
				return 1
			}
			l.Push(key)
			l.Push(m.fromJSON(v, p.life))
			return 2
		}))
		l.Push(l.Get(1))
		l.Push(lua.LNil)
		return 3
	}
}

// first is what after starts from.
func (p *proxy) first() int {
	if p.container.Kind() == pure.Array {
		return 0
	}
	return -1
}

// after returns the first entry after number at that is not null, or a nil key.
func (p *proxy) after(at int) (int, lua.LValue, pure.Value) {
	if p.container.Kind() == pure.Array {
		for at++; at <= p.container.Len(); at++ {
			if v := p.container.At(float64(at)); v.Kind != pure.Null {
				return at, lua.LNumber(at), v
			}
		}
		return at, nil, pure.Value{}
	}
	for {
		next, key, v := p.container.Step(at)
		if next < 0 {
			return at, nil, v
		}
		if at = next; v.Kind != pure.Null {
			return at, lua.LString(key), v
		}
	}
}

// placeOf returns the number of the entry with a key, for after.
func (p *proxy) placeOf(l *lua.LState, key lua.LValue) int {
	at := -1
	switch key := key.(type) {
	case *lua.LNilType:
		return p.first()
	case lua.LString:
		at = p.container.Find(string(key))
	case lua.LNumber:
		if i := int(key); lua.LNumber(i) == key && i >= 0 && p.container.Kind() == pure.Array {
			at = i // past the end, too: the element may just have been removed
		}
	}
	if at < 0 {
		l.RaiseError("next was given the key %s, which is not there", key)
	}
	return at
}

func (m *machine) next(l *lua.LState) int {
	p := m.document(l, l.Get(1))
	var key, value lua.LValue
	if p == nil {
		key, value = l.CheckTable(1).Next(l.Get(2))
	} else {
		at := p.placeOf(l, l.Get(2))
		var v pure.Value
		if _, key, v = p.after(at); key != nil {
			value = m.fromJSON(v, p.life)
		}
	}
	if key == nil || key == lua.LNil {
		l.Push(lua.LNil)
		return 1
	}
	l.Push(key)
	l.Push(value)
	return 2
}

// ipairs visits all elements of an array, null as nil.
func (m *machine) ipairs(standard lua.LValue) lua.LGFunction {
	step := m.state.NewFunction(func(l *lua.LState) int {
		p, i := m.document(l, l.Get(1)), l.CheckInt(2)+1
		if i > p.container.Len() {
			l.Push(lua.LNil)
			return 1
		}
		l.Push(lua.LNumber(i))
		l.Push(m.fromJSON(p.container.At(float64(i)), p.life))
		return 2
	})
	return func(l *lua.LState) int {
		if m.document(l, l.Get(1)) == nil {
			return callStandard(l, standard)
		}
		l.Push(step)
		l.Push(l.Get(1))
		l.Push(lua.LNumber(0))
		return 3
	}
}
