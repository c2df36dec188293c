package gopherlua

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// stringLibrary replaces the functions that can run away.
func (m *machine) stringLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"find":   func(l *lua.LState) int { return m.find(l, true) },
		"match":  func(l *lua.LState) int { return m.find(l, false) },
		"gmatch": m.gmatch,
		"gsub":   m.gsub,
		"rep":    m.rep,
	}
}

func (m *machine) matcher(l *lua.LState, src, pat string) *matcher {
	return &matcher{src: src, pat: pat, poll: func() { m.deadline.check(l) }}
}

// raiseMalformed turns a malformed pattern into an error of the script.
func raiseMalformed(l *lua.LState) {
	switch fault := recover().(type) {
	case nil:
	case patternError:
		l.RaiseError("%s", fault.Error())
	default:
		panic(fault)
	}
}

// find is string.find and, without positions, string.match.
func (m *machine) find(l *lua.LState, positions bool) int {
	defer raiseMalformed(l)
	src, pat := l.CheckString(1), l.CheckString(2)
	from := l.OptInt(3, 1)
	if from < 0 {
		from = max(len(src)+from+1, 1)
	}
	from = max(from, 1) - 1
	if from > len(src) {
		l.Push(lua.LNil)
		return 1
	}
	if positions && (lua.LVAsBool(l.Get(4)) || !strings.ContainsAny(pat, "^$*+?.([%-")) {
		return findPlain(l, src, pat, from)
	}
	mt := m.matcher(l, src, pat)
	start, end, ok := mt.find(from)
	switch {
	case !ok:
		l.Push(lua.LNil)
		return 1
	case positions:
		l.Push(lua.LNumber(start + 1))
		l.Push(lua.LNumber(end))
		return 2 + mt.push(l, start, end, mt.level)
	}
	return mt.push(l, start, end, max(mt.level, 1))
}

func findPlain(l *lua.LState, src, pat string, from int) int {
	at := strings.Index(src[from:], pat)
	if at < 0 {
		l.Push(lua.LNil)
		return 1
	}
	l.Push(lua.LNumber(from + at + 1))
	l.Push(lua.LNumber(from + at + len(pat)))
	return 2
}

// value returns capture i of a match; 0 of a match without captures is all of it.
func (m *matcher) value(i, start, end int) lua.LValue {
	if i >= m.level {
		if i > 0 {
			panic(malformed("invalid capture index"))
		}
		return lua.LString(m.src[start:end])
	}
	switch c := m.captures[i]; c.len {
	case -1:
		panic(malformed("unfinished capture"))
	case positionCapture:
		return lua.LNumber(c.start + 1)
	}
	return lua.LString(m.text(i))
}

func (m *matcher) push(l *lua.LState, start, end, n int) int {
	for i := range n {
		l.Push(m.value(i, start, end))
	}
	return n
}

func (m *machine) gmatch(l *lua.LState) int {
	pat := l.CheckString(2)
	if strings.HasPrefix(pat, "^") {
		pat = "%" + pat // there are no anchors here: it would never match twice
	}
	mt := m.matcher(l, l.CheckString(1), pat)
	from := 0
	l.Push(l.NewFunction(func(l *lua.LState) int {
		defer raiseMalformed(l)
		mt.poll = func() { m.deadline.check(l) }
		start, end, ok := mt.find(from)
		if !ok {
			from = len(mt.src) + 1
			return 0
		}
		if from = end; end == start {
			from++
		}
		return mt.push(l, start, end, max(mt.level, 1))
	}))
	return 1
}

func (m *machine) gsub(l *lua.LState) int {
	defer raiseMalformed(l)
	src, pat := l.CheckString(1), l.CheckString(2)
	replacement := l.Get(3)
	switch replacement.Type() {
	case lua.LTString, lua.LTNumber, lua.LTTable, lua.LTFunction:
	default:
		l.ArgError(3, "string, function or table expected")
	}
	left := l.OptInt(4, len(src)+1)
	mt := m.matcher(l, src, pat)
	var out strings.Builder
	at, n := 0, 0
	for ; n < left; n++ {
		start, end, ok := mt.find(at)
		if !ok {
			break
		}
		out.WriteString(src[at:start])
		out.WriteString(mt.replace(l, replacement, start, end))
		m.checkSize(l, out.Len())
		at = end
		if start == end {
			if at < len(src) {
				out.WriteByte(src[at])
			}
			at++
		}
		if at > len(src) || strings.HasPrefix(pat, "^") {
			n++
			break
		}
	}
	if at < len(src) {
		out.WriteString(src[at:])
	}
	l.Push(lua.LString(out.String()))
	l.Push(lua.LNumber(n))
	return 2
}

// replace returns what a match becomes; nil and false leave it.
func (m *matcher) replace(l *lua.LState, by lua.LValue, start, end int) string {
	var v lua.LValue
	switch by := by.(type) {
	case *lua.LFunction:
		l.Push(by)
		l.Call(m.push(l, start, end, max(m.level, 1)), 1)
		v = l.Get(-1)
		l.Pop(1)
	case *lua.LTable:
		v = l.GetTable(by, m.value(0, start, end))
	default:
		return m.expand(by.String(), start, end)
	}
	switch {
	case lua.LVIsFalse(v):
		return m.src[start:end]
	case v.Type() != lua.LTString && v.Type() != lua.LTNumber:
		l.RaiseError("invalid replacement value (a %s)", v.Type())
	}
	return v.String()
}

// expand fills captures into a replacement like "%1-%2".
func (m *matcher) expand(by string, start, end int) string {
	var out strings.Builder
	for i := 0; i < len(by); i++ {
		switch {
		case by[i] != '%' || i+1 == len(by):
			out.WriteByte(by[i])
			continue
		case by[i+1] == '0':
			out.WriteString(m.src[start:end])
		case isDigit(by[i+1]):
			out.WriteString(m.value(int(by[i+1]-'1'), start, end).String())
		default:
			out.WriteByte(by[i+1])
		}
		i++
	}
	return out.String()
}

func (m *machine) rep(l *lua.LState) int {
	s, n := l.CheckString(1), l.CheckNumber(2)
	if n < 1 || s == "" {
		l.Push(lua.LString(""))
		return 1
	}
	if float64(n)*float64(len(s)) > float64(m.opts.Limits.Memory) {
		l.RaiseError("memory limit: string.rep would make a string of %.0f bytes", float64(n)*float64(len(s)))
	}
	l.Push(lua.LString(strings.Repeat(s, int(n))))
	return 1
}

// checkSize refuses a string that alone would exceed the memory of a script.
func (m *machine) checkSize(l *lua.LState, size int) {
	if size > m.opts.Limits.Memory {
		l.RaiseError("memory limit: a string of %d bytes", size)
	}
}
