package gopherlua

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/stdlib"
)

// function wraps a Go function for Lua. The deadline is paused while one waits.
func (m *machine) function(name string, f script.Func, waits bool) lua.LGFunction {
	return func(l *lua.LState) int {
		args, err := m.arguments(l)
		if err != nil {
			l.RaiseError("%s: %s", name, err.Error())
		}
		if waits {
			m.deadline.pause()
			m.waits.Store(true)
		}
		var ctx context.Context = functionContext{m.deadline.ctx, m.opts.Limits.Memory}
		if waits {
			limited, cancel := context.WithDeadline(m.ctx, m.deadline.wall)
			defer cancel()
			ctx = limited
		}
		results, err := stdlib.Call(ctx, name, f, args)
		if waits {
			m.waits.Store(false)
			m.deadline.resume()
		}
		if err != nil {
			l.RaiseError("%s", err.Error())
		}
		for _, v := range results {
			l.Push(m.fromGo(v))
		}
		return len(results)
	}
}

// A functionContext is the context of a function that does not wait.
type functionContext struct {
	context.Context
	memory int
}

// MemoryLeft returns the memory limit: nothing counts what a script has.
func (c functionContext) MemoryLeft() int { return c.memory }

// arguments returns copies of the arguments of a call.
func (m *machine) arguments(l *lua.LState) ([]any, error) {
	args := make([]any, l.GetTop())
	for i := range args {
		m.document(l, l.Get(i+1)) // raises when it has ended
		m.writing = m.writing[:0]
		var err error
		if args[i], err = m.toGo(l.Get(i + 1)); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	return args, nil
}

func (m *machine) toGo(v lua.LValue) (any, error) {
	switch v := v.(type) {
	case *lua.LNilType:
		return nil, nil
	case lua.LBool:
		return bool(v), nil
	case lua.LNumber:
		return float64(v), nil
	case lua.LString:
		return string(v), nil
	case *lua.LTable:
		return m.tableToGo(v)
	case *lua.LUserData:
		value, err := m.userDataToJSON(v)
		if err != nil {
			return nil, err
		}
		return pure.Plain(value)
	}
	return nil, fmt.Errorf("a %s cannot be passed to a Go function", v.Type())
}

func (m *machine) tableToGo(t *lua.LTable) (any, error) {
	if slices.Contains(m.writing, t) {
		return nil, errors.New("a table that contains itself: there is a cycle")
	}
	if len(m.writing) == nestingMax {
		return nil, fmt.Errorf("tables nested deeper than %d", nestingMax)
	}
	m.writing = append(m.writing, t)
	defer func() { m.writing = m.writing[:len(m.writing)-1] }()
	shape, err := m.shapeOf(t)
	if err != nil {
		return nil, err
	}
	if !shape.isList {
		fields := make(map[string]any, len(shape.keys))
		for _, key := range shape.keys {
			if fields[key], err = m.toGo(t.RawGetString(key)); err != nil {
				return nil, pure.Within(key, err)
			}
		}
		return fields, nil
	}
	list := make([]any, shape.length)
	for i := range list {
		if list[i], err = m.toGo(t.RawGetInt(i + 1)); err != nil {
			return nil, pure.Within(fmt.Sprint(i+1), err)
		}
	}
	return list, nil
}

// fromGo converts a value that stdlib.Call returned.
func (m *machine) fromGo(v any) lua.LValue {
	switch v := v.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case json.Number:
		return m.big(string(v))
	case []any:
		t := m.state.CreateTable(len(v), 0)
		t.Metatable = m.listMeta
		for i := range v {
			t.RawSetInt(i+1, m.fromGo(v[i]))
		}
		return t
	case map[string]any:
		t := m.state.CreateTable(0, len(v))
		for key := range v {
			t.RawSetString(key, m.fromGo(v[key]))
		}
		return t
	}
	return lua.LNil
}
