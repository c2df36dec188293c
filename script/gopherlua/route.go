package gopherlua

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// A routedValue is the result of to(): a value and its sinks.
type routedValue struct {
	to    uint64
	value lua.LValue
}

func routedValueOf(v lua.LValue) *routedValue {
	if ud, ok := v.(*lua.LUserData); ok {
		m, _ := ud.Value.(*routedValue)
		return m
	}
	return nil
}

// to returns a value with the sinks that are named.
func (m *machine) to(l *lua.LState) int {
	if l.GetTop() < 2 {
		l.RaiseError("bad argument #2 to 'to' (an event, a table or a list of them expected)")
	}
	names := m.sinkNames(l)
	if len(names) == 0 {
		l.RaiseError("bad argument #1 to 'to' (the list names no sink; return nil to drop an event)")
	}
	to, err := m.opts.Route(names...)
	if err != nil {
		l.RaiseError("%s", err.Error())
	}
	l.Push(&lua.LUserData{Value: &routedValue{to: to, value: l.Get(2)}, Metatable: m.routedMeta})
	return 1
}

// sinkNames reads the first argument: a name, or a list of names.
func (m *machine) sinkNames(l *lua.LState) (names []string) {
	add := func(_ int, v lua.LValue) error {
		name, ok := v.(lua.LString)
		if !ok {
			l.RaiseError("bad argument #1 to 'to' (the name of a sink or a list of names expected, got %s)", v.Type())
		}
		names = append(names, string(name))
		return nil
	}
	v := l.Get(1)
	p := m.document(l, v)
	_, isTable := v.(*lua.LTable)
	if !isTable && (p == nil || p.container.Kind() != pure.Array) {
		_ = add(1, v) // it raises
		return names
	}
	if err := m.elements(v, add); err != nil {
		l.RaiseError("%s", err.Error())
	}
	return names
}

// emitRouted appends a value for its sinks.
func (m *machine) emitRouted(r *run, i int, of *routedValue) error {
	if r.to != 0 {
		return m.newError(`main returned to() inside of to(); give one to() all the names: to({"a", "b"}, event)`)
	}
	r.to = of.to
	err := m.emitValue(r, i, of.value)
	r.to = 0
	return err
}
