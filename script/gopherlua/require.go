package gopherlua

import (
	"log/slog"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/stdlib"
)

// openModules creates the modules that need no file, and the global os.
func (m *machine) openModules(json *lua.LTable) {
	m.required = map[string]lua.LValue{
		"json":  json,
		"log":   m.readOnly("log", m.logLibrary()),
		"stats": m.readOnly("stats", m.statsLibrary()),
	}
	for _, module := range m.modules {
		functions := m.moduleFunctions(module)
		if module.Name == "re" {
			functions["gmatch"] = gmatchOf(functions["all"])
		}
		m.required[module.Name] = m.readOnly(module.Name, functions)
	}
	m.globals.RawSetString("os", m.readOnly("os", m.moduleFunctions(stdlib.OS(m.opts.Trial))))
}

// moduleFunctions wraps the functions of a module.
func (m *machine) moduleFunctions(module script.Module) map[string]lua.LGFunction {
	functions := make(map[string]lua.LGFunction)
	for name, f := range module.Functions {
		functions[name] = m.function(module.Name+"."+name, f, true)
	}
	for name, f := range module.Pure {
		functions[name] = m.function(module.Name+"."+name, f, false)
	}
	return functions
}

// readOnly returns a read-only table of functions.
func (m *machine) readOnly(name string, functions map[string]lua.LGFunction) *lua.LTable {
	behind := m.state.NewTable()
	m.setFunctions(behind, functions)
	return m.readOnlyView(name, behind)
}

// gmatchOf returns re.gmatch(text, pattern), which iterates over the matches of re.all.
func gmatchOf(all lua.LGFunction) lua.LGFunction {
	return func(l *lua.LState) int {
		l.SetTop(2)
		all(l)
		found, at := l.CheckTable(-1), 0
		l.Push(l.NewFunction(func(l *lua.LState) int {
			at++
			groups, several := found.RawGetInt(at).(*lua.LTable)
			if !several {
				l.Push(found.RawGetInt(at))
				return 1
			}
			for i := 1; i <= groups.Len(); i++ {
				l.Push(groups.RawGetInt(i))
			}
			return groups.Len()
		}))
		return 1
	}
}

// require returns a module, or the result of a file, which runs once per VM.
func (m *machine) require(l *lua.LState) int {
	name := l.CheckString(1)
	v, known := m.required[name]
	if v == lua.LNil {
		l.RaiseError("require %q: the file requires itself", name)
	}
	if !known {
		v = m.requireFile(l, name)
	}
	l.Push(v)
	return 1
}

func (m *machine) requireFile(l *lua.LState, name string) lua.LValue {
	text, path, err := m.source.Require(name)
	if err != nil {
		l.RaiseError("%s", err.Error())
	}
	proto, err := compile(script.Code{Name: path, Text: text}, m.opts.Trial.Covers() != nil)
	if err != nil {
		l.Error(lua.LString(err.Error()), 0)
	}
	m.files[path] = true
	fn := l.NewFunctionFromProto(proto)
	fn.Env = m.env
	m.required[name] = lua.LNil
	loaded := false
	defer func() {
		if !loaded {
			delete(m.required, name)
		}
	}()
	l.Push(fn)
	l.Push(lua.LString(name))
	l.Call(1, 1)
	v := l.Get(-1)
	if v == lua.LNil {
		v = lua.LTrue
	}
	m.required[name], loaded = v, true
	return v
}

func (m *machine) logLibrary() map[string]lua.LGFunction {
	at := func(level slog.Level) lua.LGFunction {
		return func(l *lua.LState) int {
			m.logLine(l, level)
			return 0
		}
	}
	return map[string]lua.LGFunction{
		"debug": at(slog.LevelDebug), "info": at(slog.LevelInfo), "warn": at(slog.LevelWarn),
		"warning": at(slog.LevelWarn), "error": at(slog.LevelError),
	}
}

// logLine logs the arguments of a call, as print does.
func (m *machine) logLine(l *lua.LState, level slog.Level) {
	var text strings.Builder
	for i := 1; i <= l.GetTop(); i++ {
		if i > 1 {
			text.WriteByte('\t')
		}
		text.WriteString(l.ToStringMeta(l.Get(i)).String())
		m.checkSize(l, text.Len())
	}
	m.lines.Line(level, text.String(), m.name, strings.TrimSuffix(l.Where(1), ":"))
}

func (m *machine) statsLibrary() map[string]lua.LGFunction {
	functions := make(map[string]lua.LGFunction)
	for name, kind := range stdlib.StatKinds() {
		functions[name] = func(l *lua.LState) int {
			args, err := m.arguments(l)
			if err == nil {
				err = m.measure(kind, args)
			}
			if err != nil {
				l.RaiseError("stats.%s: %s", name, err.Error())
			}
			return 0
		}
	}
	return functions
}

// measure returns an error for invalid arguments. A measurement that Stats refuses is
// logged and does not fail the event.
func (m *machine) measure(kind script.StatKind, args []any) error {
	name, value, labels, err := stdlib.Measurement(kind, args)
	if err != nil || m.stats == nil {
		return err
	}
	if err := m.stats.Add(kind, name, value, labels...); err != nil {
		m.lines.Line(slog.LevelWarn, err.Error(), m.name, "stats")
	}
	return nil
}
