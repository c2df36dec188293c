package gopherlua

import (
	"log/slog"
	"slices"

	lua "github.com/yuin/gopher-lua"
)

// allowed are the functions of gopher-lua's libraries that scripts get. Functions that
// must take documents for tables, and those that could run without end, are our own.
var allowed = map[string][]string{
	"":          {"assert", "getmetatable", "rawequal", "select", "setmetatable", "tostring"},
	"string":    {"byte", "char", "format", "len", "lower", "reverse", "sub", "upper"},
	"math":      {"abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "floor", "fmod", "frexp", "huge", "ldexp", "log", "log10", "max", "min", "modf", "pi", "pow", "rad", "random", "randomseed", "sin", "sinh", "sqrt", "tan", "tanh"},
	"coroutine": {"create", "resume", "running", "status", "wrap"},
}

// sandbox creates the globals and returns the environment of the script: an empty table
// in front of them, so that every assignment to a global is noticed.
func (m *machine) sandbox() *lua.LTable {
	l := m.state
	standard := m.openStandard()
	m.docMeta, m.bigMeta, m.listMeta, m.routedMeta = m.documentMeta(), m.bigMetatable(), m.metatable(nil), m.metatable(nil)
	m.null = &lua.LUserData{Metatable: m.metatable(map[string]lua.LGFunction{
		"__tostring": func(l *lua.LState) int { l.Push(lua.LString("userdata: NULL")); return 1 },
	})}
	m.globals = l.NewTable()
	for _, name := range allowed[""] {
		m.globals.RawSetString(name, standard.RawGetString(name))
	}
	m.setFunctions(m.globals, m.baseLibrary(standard))
	if c := m.opts.Trial.Covers(); c != nil {
		m.setFunctions(m.globals, map[string]lua.LGFunction{lineFunction: lineReporter(c)})
	}
	if !m.opts.ReturnsValue { // what the function returns is for no sink
		m.setFunctions(m.globals, map[string]lua.LGFunction{"to": m.to})
	}
	strings := m.library(standard, "string", m.stringLibrary())
	m.library(standard, "math", nil)
	m.library(standard, "coroutine", map[string]lua.LGFunction{
		"yield": m.yield(standard.RawGetString("coroutine").(*lua.LTable).RawGetString("yield")),
	})
	m.library(standard, "table", m.tableLibrary(standard.RawGetString("table").(*lua.LTable)))
	json := m.library(standard, "json", m.jsonLibrary())
	json.RawSetString("null", m.null)
	m.openModules(m.globals.RawGetString("json").(*lua.LTable))
	// Methods of strings go to our library, and nobody gets hold of their metatable.
	meta := l.GetMetatable(lua.LString("")).(*lua.LTable)
	meta.RawSetString("__index", strings)
	meta.RawSetString("__metatable", lua.LFalse)
	env := l.NewTable()
	env.Metatable = m.guard(m.globals, m.newGlobal)
	m.globals.RawSetString("_G", env)
	return env
}

// openStandard opens gopher-lua's libraries, out of reach of scripts.
func (m *machine) openStandard() *lua.LTable {
	l := m.state
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenString, lua.OpenMath, lua.OpenTable, lua.OpenCoroutine} {
		l.Push(l.NewFunction(open))
		l.Call(0, 0)
	}
	return l.G.Global
}

// library adds a read-only global with the allowed functions of a standard library and
// our own. It returns the writable table.
func (m *machine) library(standard *lua.LTable, name string, own map[string]lua.LGFunction) *lua.LTable {
	behind := m.state.NewTable()
	if from, ok := standard.RawGetString(name).(*lua.LTable); ok {
		for _, function := range allowed[name] {
			behind.RawSetString(function, from.RawGetString(function))
		}
	}
	m.setFunctions(behind, own)
	m.globals.RawSetString(name, m.readOnlyView(name, behind))
	return behind
}

// readOnlyView returns a read-only view of a library.
func (m *machine) readOnlyView(name string, behind *lua.LTable) *lua.LTable {
	front := m.state.NewTable()
	front.Metatable = m.guard(behind, func(l *lua.LState) int {
		l.RaiseError("the library %s is read-only", name)
		return 0
	})
	return front
}

func (m *machine) setFunctions(t *lua.LTable, functions map[string]lua.LGFunction) {
	for name, function := range functions {
		t.RawSetString(name, m.state.NewFunction(function))
	}
}

// guard returns a metatable that reads from behind and passes writes to refuse.
func (m *machine) guard(behind *lua.LTable, refuse lua.LGFunction) *lua.LTable {
	meta := m.metatable(map[string]lua.LGFunction{"__newindex": refuse})
	meta.RawSetString("__index", behind)
	return meta
}

// metatable returns a metatable that scripts can neither read nor replace.
func (m *machine) metatable(functions map[string]lua.LGFunction) *lua.LTable {
	meta := m.state.NewTable()
	m.setFunctions(meta, functions)
	meta.RawSetString("__metatable", lua.LFalse)
	return meta
}

// newGlobal allows new globals while the script loads, and refuses them later.
func (m *machine) newGlobal(l *lua.LState) int {
	if m.loaded {
		l.RaiseError("assignment to the global %s at run time: write local %s, or set it outside of main", l.Get(2), l.Get(2))
	}
	m.globals.RawSet(l.Get(2), l.Get(3))
	return 0
}

// baseLibrary returns the global functions that differ from gopher-lua's.
func (m *machine) baseLibrary(standard *lua.LTable) map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"error":    raiseError,
		"ipairs":   m.ipairs(standard.RawGetString("ipairs")),
		"next":     m.next,
		"pairs":    m.pairs(standard.RawGetString("pairs")),
		"pcall":    m.protected(standard.RawGetString("pcall")),
		"print":    m.print,
		"require":  m.require,
		"tonumber": m.tonumber(standard.RawGetString("tonumber")),
		"type":     m.typeOf,
		"unpack":   m.unpack,
		"xpcall":   m.protected(standard.RawGetString("xpcall")),
	}
}

// raiseError is Lua's error. Unlike gopher-lua's it accepts nil, and level 2 is the
// caller.
func raiseError(l *lua.LState) int {
	level := l.OptInt(2, 1)
	if level > 0 {
		level++ // gopher-lua counts this function
	}
	l.Error(l.Get(1), level)
	return 0
}

// protectedMax bounds nested pcalls: each of them walks the whole stack when an error
// passes.
const protectedMax = 200

func (m *machine) protected(standard lua.LValue) lua.LGFunction {
	return func(l *lua.LState) int {
		if len(m.protecting) == protectedMax {
			l.RaiseError("stack overflow: more than %d calls of pcall inside each other", protectedMax)
		}
		depth := len(m.protecting)
		m.protecting = append(m.protecting, l)
		defer func() { m.protecting = m.protecting[:depth] }()
		n := callStandard(l, standard)
		m.broken = m.broken || n == 2 && isPanicText(l.Get(-1))
		return n
	}
}

// yield refuses what gopher-lua cannot do and does not notice.
func (m *machine) yield(standard lua.LValue) lua.LGFunction {
	original := standard.(*lua.LFunction).GFunction
	return func(l *lua.LState) int {
		if slices.Contains(m.protecting, l) {
			l.RaiseError("attempt to yield across pcall")
		}
		return original(l)
	}
}

func (m *machine) typeOf(l *lua.LState) int {
	v := l.CheckAny(1)
	name := v.Type().String()
	if isProxy(v) {
		name = "table"
	}
	l.Push(lua.LString(name))
	return 1
}

func (m *machine) tonumber(standard lua.LValue) lua.LGFunction {
	return func(l *lua.LState) int {
		if b, ok := bigOf(l.Get(1)); ok {
			l.Push(lua.LNumber(b.float()))
			return 1
		}
		return callStandard(l, standard)
	}
}

// callStandard calls another function with the same arguments.
func callStandard(l *lua.LState, f lua.LValue) int {
	n := l.GetTop()
	l.Insert(f, 1)
	l.Call(n, lua.MultRet)
	return l.GetTop()
}

// print writes to the log: the standard output belongs to sinks.
func (m *machine) print(l *lua.LState) int {
	m.logLine(l, slog.LevelInfo)
	return 0
}
