//go:build cgo && luajit

package luajit

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A programmer writes random scripts that end, and note what they see. The same seed gives the same
// script. Variables are named for the values that they mostly have: n numbers, s strings, t tables,
// a anything. f are functions of one number and "...".
type programmer struct {
	*rand.Rand
	out    strings.Builder
	indent int
	vars   map[byte]int // number of variables by letter
	depth  int          // of nested blocks
	labels int
	nodes  bool // it uses the node database
}

// programPrelude limits the script: it ends after a number of loop iterations, and strings and
// tables stay small. show and list omit everything that LuaJIT does not guarantee: the sign of a
// NaN or zero in compiled code, the order of pairs, which depends on addresses, and the length of a
// table with holes.
const programPrelude = `local event = {l = {}, o = {}}
local steps, notes, noted = 0, {}, 0
local function show(v, depth)
  if type(v) == "number" then
    if v ~= v then return "nan" end
    if v == 0 then return "0" end
    return string.format("%.17g", v)
  end
  if type(v) == "string" then return string.format("%q", v) end
  if type(v) ~= "table" then return (tostring(v):gsub("0x%x+", ""):gsub("^%w+: .*", type(v))) end
  if depth > 2 then return "{}" end
  local all = {}
  for k, x in pairs(v) do all[#all + 1] = show(k, depth + 1) .. "=" .. show(x, depth + 1) end
  table.sort(all)
  return "{" .. table.concat(all, ",") .. "}"
end
local function note(...)
  if noted > 400 then return end
  noted = noted + 1
  local line = {}
  for i = 1, select("#", ...) do line[i] = show((select(i, ...)), 0) end
  notes[noted] = table.concat(line, " ")
end
local function tick()
  steps = steps + 1
  if steps > 6000 then error("too many steps", 0) end
end
local function num(v) if type(v) == "number" then return v end return 1 end
local function int(v) v = num(v) if v ~= v or v > 1e6 or v < -1e6 then return 3 end return math.floor(v) end
local function str(v)
  if type(v) == "number" then if v == 0 or v ~= v then return "0" end v = tostring(v) end
  if type(v) ~= "string" then return "s" end
  return #v > 60 and v:sub(1, 20) or v
end
local function tab(v) if type(v) == "table" then return v end return {1, 2, x = 3} end
local function list(t)
  t = tab(t)
  local n = 0
  for k in pairs(t) do if type(k) == "number" then n = n + 1 end end
  for i = 1, n do if rawequal(t[i], nil) then return {1, 2} end end
  return t
end
local function len(t) return #list(t) end
local function key(v) if v == nil or v ~= v then return "k" end return v end
local meta = {}
meta.__index = function(t, k) return k end
meta.__add = function(a, b) return num(rawequal(a, b) and 1 or 2) end
meta.__concat = function(a, b) return "cat" end
meta.__call = function(self, a) return a end
meta.__len = function() return 7 end
meta.__eq = function() return true end
meta.__lt = function() return true end
meta.__le = function() return false end
meta.__unm = function() return -5 end
local parent = {__index = {x = 11, y = "up", [1] = "one"}}
`

// program returns the script for a seed.
func program(seed uint64) string {
	p := &programmer{Rand: rand.New(rand.NewPCG(seed, 1)), vars: map[byte]int{}}
	p.out.WriteString(programPrelude)
	return p.program()
}

func (p *programmer) program() string {
	for range 1 + p.IntN(3) {
		p.declare()
	}
	for range 1 + p.IntN(3) {
		p.function()
	}
	p.line("function main(e)")
	p.line("  event = e")
	p.line("  steps, notes, noted = 0, {}, 0")
	p.line("  note(pcall(function(...)")
	p.indent = 2
	p.nested(func() {
		p.declare()
		for range 3 + p.IntN(6) {
			p.statement()
		}
		p.line("note(%s, %s, %s)", p.variable('n'), p.variable('t'), p.variable('a'))
	})
	p.indent = 1
	p.line("end, 1, 'two', nil))")
	p.line("e.notes = table.concat(notes, '\\n')")
	p.line("return e")
	p.indent = 0
	p.line("end")
	return p.out.String()
}

func (p *programmer) line(format string, args ...any) {
	p.out.WriteString(strings.Repeat("  ", p.indent))
	fmt.Fprintf(&p.out, format+"\n", args...)
}

// pick returns a random one of the texts.
func (p *programmer) pick(from ...string) string { return from[p.IntN(len(from))] }

// nested writes a block; its variables end with it.
func (p *programmer) nested(body func()) {
	vars := map[byte]int{}
	for k, n := range p.vars {
		vars[k] = n
	}
	p.indent++
	p.depth++
	body()
	p.depth--
	p.indent--
	p.vars = vars
}

func (p *programmer) declare() {
	for _, kind := range []byte("nsta") {
		value := map[byte]func() string{'n': p.number, 's': p.text, 't': p.table, 'a': p.any}[kind]()
		p.line("local %c%d = %s", kind, p.vars[kind]+1, value)
		p.vars[kind]++
	}
}

func (p *programmer) function() {
	name := p.vars['f'] + 1
	p.line("local function f%d(n, ...)", name)
	outside := p.vars['n']
	p.nested(func() {
		p.vars['n'] = outside
		p.line("tick()")
		p.declare()
		p.line("n%d = num(n)", p.vars['n'])
		for range 1 + p.IntN(3) {
			p.statement()
		}
		switch p.IntN(4) {
		case 0:
			p.line("if num(n) < 3 then return f%d(num(n) + 1, ...) end", name)
		case 1:
			p.line("if int(n) %% 4 == 1 then return 1 + num(f%d(num(n) + 1)) end", name)
		}
		p.line("return %s, %s", p.any(), p.pick("...", p.number(), "select('#', ...)"))
	})
	p.line("end")
	p.vars['f'] = name
}

func (p *programmer) variable(kind byte) string {
	if p.vars[kind] == 0 {
		return map[byte]string{'n': "2", 's': "'v'", 't': "tab()", 'a': "(nil)", 'f': "note"}[kind]
	}
	return fmt.Sprintf("%c%d", kind, 1+p.IntN(p.vars[kind]))
}

func (p *programmer) number() string {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > 7 || p.IntN(3) == 0 {
		return p.pick(p.variable('n'), p.variable('n'), fmt.Sprint(p.IntN(10)), "0", "1", "-1", "-0", "0.5", "1e300", "-2^31", "2^31",
			"2^53", "1/0", "0/0", "3.54484805889626e-310", "2147483647", "4294967295", "1e15", "0x7fffffff", "-3.7")
	}
	a, b := p.number, p.number
	switch p.IntN(19) {
	case 0, 1, 2, 3, 4:
		return fmt.Sprintf("(%s %s %s)", a(), p.pick("+", "-", "*", "/", "%", "^", "+", "-"), b())
	case 5:
		return fmt.Sprintf("math.%s(%s)", p.pick("floor", "ceil", "abs", "sqrt", "sin", "exp", "tan", "deg"), a())
	case 6:
		return fmt.Sprintf("math.%s(%s, %s)", p.pick("min", "max", "fmod", "atan2", "pow"), a(), b())
	case 7:
		if p.IntN(6) == 0 { // an exponent beyond an int, which the compiler folds to another number
			return fmt.Sprintf("math.ldexp(%s, int(%s))", a(), b())
		}
		return fmt.Sprintf("bit.%s(int(%s), %s)", p.pick("band", "bor", "bxor", "lshift", "rshift", "arshift", "rol"), a(), p.pick("3", "31", "-1", "int("+b()+")"))
	case 8:
		return p.pick("len("+p.variable('t')+")", "#"+p.variable('s'), "#"+"("+p.text()+")")
	case 9:
		return "(- " + a() + ")"
	case 10:
		return fmt.Sprintf("num(tonumber(%s))", p.text())
	case 11:
		return fmt.Sprintf("num(%s)", p.any())
	case 12:
		return fmt.Sprintf("num((%s):byte(int(%s)))", p.text(), a())
	case 13:
		return fmt.Sprintf("num(%s)", p.load())
	case 14:
		return fmt.Sprintf("(%s and %s or %s)", p.condition(), a(), b())
	case 15:
		return fmt.Sprintf("(%s ? %s : %s)", p.condition(), a(), b())
	case 16:
		return fmt.Sprintf("num(%s ?? %s)", p.load(), a())
	case 17:
		return fmt.Sprintf("(int(%s) %s %s)", a(), p.pick("&", "|", "<<", ">>", "~>>"), p.pick("1", "31", "int("+b()+")"))
	}
	return fmt.Sprintf("num(%s(%s))", p.variable('f'), a())
}

func (p *programmer) text() string {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > 7 || p.IntN(3) == 0 {
		return p.pick(p.variable('s'), p.variable('s'), "''", "'a'", "'abc'", "'10'", "'0x10'", "'1e1'", "'\\0x'", "'k'", "event.s or ''")
	}
	switch p.IntN(8) {
	case 0:
		return fmt.Sprintf("str(%s .. %s)", p.text(), p.pick("str("+p.number()+")", p.text()))
	case 1:
		return fmt.Sprintf("(%s):sub(int(%s), int(%s))", p.text(), p.number(), p.number())
	case 2:
		return fmt.Sprintf("str(%s)", p.any())
	case 3:
		return fmt.Sprintf("(%s):%s()", p.text(), p.pick("upper", "lower", "reverse"))
	case 4:
		return fmt.Sprintf("str((%s):rep(int(%s) %% 5))", p.text(), p.number())
	case 5:
		return fmt.Sprintf("string.char(int(%s) %% 256)", p.number())
	case 6:
		return fmt.Sprintf("string.format(%s, int(%s))", p.pick("'%d'", "'%5d'", "'%x'", "'%s'", "'%.3f'", "'%g'"), p.number())
	}
	return fmt.Sprintf("str((%s):%s)", p.text(), p.pick("match('%a+')", "match('(.)')", "find('a', 1, true)", "gsub('a', 'bb')", "gsub('.', {a = 1})"))
}

func (p *programmer) condition() string {
	switch p.IntN(9) {
	case 0:
		return fmt.Sprintf("%s == %s", p.any(), p.any())
	case 1:
		return fmt.Sprintf("%s ~= %s", p.pick(p.any(), p.load()), p.pick("nil", p.any()))
	case 2:
		return fmt.Sprintf("%s < %s", p.text(), p.text())
	case 3:
		return fmt.Sprintf("not (%s)", p.pick(p.any(), p.load()))
	case 4:
		return p.pick(p.any(), p.load())
	}
	return fmt.Sprintf("%s %s %s", p.number(), p.pick("<", "<=", ">", ">=", "==", "~=", "!="), p.number())
}

// load reads from a table or the event.
func (p *programmer) load() string {
	t := p.variable('t')
	switch p.IntN(8) {
	case 0:
		return t + "." + p.pick("x", "y", "k", "a")
	case 1:
		return "event." + p.pick("n", "s", "l", "o.a", "o.b", "l[1]", "l[2]", "missing", "big")
	case 2:
		return fmt.Sprintf("(%s?.x)", t)
	case 3:
		return fmt.Sprintf("(rawequal(%s, %s))", p.any(), p.any())
	case 4, 5:
		return fmt.Sprintf("%s[%d]", t, p.IntN(9))
	}
	return fmt.Sprintf("%s[key(%s)]", t, p.pick(p.number(), p.text(), p.any()))
}

func (p *programmer) table() string {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > 6 {
		return "{}"
	}
	switch p.IntN(9) {
	case 0:
		return "{}"
	case 1:
		return fmt.Sprintf("{%s, %s, 3.54484805889626e-310}", p.number(), p.any())
	case 2:
		return fmt.Sprintf("{x = %s, y = %s, [%s] = %s}", p.any(), p.number(), p.pick("1", "2", "'k'", "0", "2.5", "-1"), p.any())
	case 3:
		return fmt.Sprintf("setmetatable({%s}, %s)", p.any(), p.pick("meta", "parent"))
	case 4:
		return fmt.Sprintf("{%s(%s)}", p.variable('f'), p.number())
	case 5:
		return "{1, 2, 3, 4, 5, 6, 7, 8, nil, 10}"
	case 6:
		return fmt.Sprintf("tab(%s)", p.any())
	case 7:
		return p.variable('t')
	}
	return fmt.Sprintf("{%s, %s, x = %s}", p.any(), p.any(), p.any())
}

func (p *programmer) any() string {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > 7 {
		return p.pick("nil", "true", "false", p.variable('a'))
	}
	switch p.IntN(12) {
	case 0:
		return p.pick("nil", "true", "false")
	case 1, 2:
		return p.variable('a')
	case 3, 4:
		return p.number()
	case 5:
		return p.text()
	case 6:
		return p.table()
	case 7:
		return p.load()
	case 8:
		return "(" + p.condition() + ")"
	case 9:
		return fmt.Sprintf("(%s(%s, %s))", p.variable('f'), p.number(), p.any())
	case 10:
		return p.pick("type("+p.variable('a')+")", "(select(2, pcall(error, "+p.text()+")))", "(select(-1, "+p.number()+", "+p.text()+"))")
	}
	return fmt.Sprintf("(%s and %s)", p.any(), p.any())
}

// store assigns to a table or the event.
func (p *programmer) store() {
	t := p.variable('t')
	switch p.IntN(9) {
	case 0:
		p.line("%s.%s = %s", t, p.pick("x", "y", "k", "a"), p.any())
	case 1:
		p.line("event.%s = %s", p.pick("n", "s", "o.a", "fresh", "l[2]"), p.pick(p.number(), p.text(), "nil", "true"))
	case 2:
		p.line("table.insert(list(%s), %s)", t, p.pick(p.any(), p.number()))
	case 3:
		p.line("table.remove(list(%s)%s)", t, p.pick("", ", 1", ", 2"))
	case 4:
		p.line("%s[len(%s) + 1] = %s", t, t, p.number())
	case 5:
		p.line("%s[1], %s[2], %s[3], %s[4] = nil, nil, nil, %s", t, t, t, t, p.any())
	case 6:
		p.line("%s[%d] = %s", t, p.IntN(9), p.any())
	default:
		p.line("%s[key(%s)] = %s", t, p.pick(p.number(), p.text(), p.any()), p.any())
	}
}

func (p *programmer) statement() {
	if p.nodes && p.IntN(3) > 0 {
		p.nodeStatement()
		return
	}
	if p.depth > 5 {
		p.assign()
		return
	}
	switch p.IntN(22) {
	default:
		p.hotLoop()
	case 0, 1:
		p.assign()
	case 2, 3:
		p.store()
	case 4:
		p.line("note(%s, %s)", p.any(), p.number())
	case 5, 6, 7:
		p.countLoop()
	case 8:
		p.line("if %s then", p.condition())
		p.block(2)
		if p.IntN(2) == 0 {
			p.line("else")
			p.block(2)
		}
		p.line("end")
	case 9:
		p.line("while %s do", p.condition())
		p.line("  tick()")
		p.block(2)
		p.line("  if steps %% %d == 0 then break end", 2+p.IntN(40))
		p.line("end")
	case 10:
		p.line("for k, v in %s(tab(%s)) do", p.pick("pairs", "ipairs", "next,"), p.variable('t'))
		p.line("  tick()")
		p.line("  if type(v) == 'number' and v == v and v < 1e9 and v > -1e9 then n1 = num(n1) + math.floor(v) end")
		p.line("  if type(k) == 'string' then n1 = num(n1) + #k end")
		p.line("end")
	case 11:
		p.line("note(pcall(function(...)")
		p.block(2)
		p.line("  %s", p.pick("error(str("+p.any()+"))", "return "+p.any(), "local x = "+p.variable('a')+" + 1", "return "+p.variable('a')+".x.y", "return #"+p.variable('a'), p.variable('a')+"()"))
		p.line("end, %s))", p.number())
	case 12:
		p.line("for v in coroutine.wrap(function()")
		p.nested(func() {
			p.line("for i = 1, %d do", 1+p.IntN(30))
			p.block(1)
			p.line("  coroutine.yield(i)")
			p.line("end")
		})
		p.line("end) do tick() n1 = num(n1) + v end")
	case 13:
		p.line("do")
		p.line("  local kept = {}")
		p.line("  for i = 1, %d do tick() local up = i + %s kept[i] = function(x) up = num(up) + x return up end end", 3+p.IntN(20), p.number())
		p.line("  for i = 1, #kept do n1 = num(kept[i](i)) end")
		p.line("  note(n1)")
		p.line("end")
	case 14:
		p.line("local function g(...)")
		p.nested(func() {
			p.line("local x, y = ...")
			p.line("return %s, ...", p.pick("x", "select('#', ...)", "(select(2, ...))", "unpack({...}, 1, 2)", p.any()))
		})
		p.line("end")
		p.line("for i = 1, %d do tick() a1 = g(i, %s) end", 2+p.IntN(30), p.any())
		p.line("note(a1)")
	case 15:
		p.line("repeat")
		p.line("  tick()")
		p.block(2)
		p.line("until steps %% %d == 0 or %s", 2+p.IntN(40), p.condition())
	case 16:
		p.line("table.sort(tab(%s), function(a, b) return str(a) < str(b) end)", p.pick("{3, 'a', 1, 'c', 2}", "{"+p.text()+", "+p.text()+", "+p.number()+"}"))
	}
}

func (p *programmer) block(maxLines int) {
	p.nested(func() {
		for range 1 + p.IntN(maxLines) {
			p.statement()
		}
	})
}

func (p *programmer) countLoop() {
	from, to, step := fmt.Sprint(p.IntN(3)), fmt.Sprint(3+p.IntN(60)), ""
	switch p.IntN(8) {
	case 0:
		from, to, step = to, from, ", -1"
	case 1:
		step = ", " + p.pick("0.5", "2", "3", "7", "0.1")
	case 2:
		to = "int(" + p.number() + ") % 50"
	case 3:
		from, to = "2^31 - 5", "2^31 + 5"
	case 4:
		from, to = "-2^31 - 5", "-2^31 + 5"
	}
	p.line("for i = %s, %s%s do", from, to, step)
	p.line("  tick()")
	p.nested(func() {
		p.vars['n']++
		p.line("local n%d = i", p.vars['n'])
		switch p.IntN(5) {
		case 0:
			p.line("if %s then continue end", p.condition())
		case 1:
			p.line("if %s then break end", p.condition())
		case 2:
			p.labels++
			label := p.labels
			p.line("if %s then goto done%d end", p.condition(), label)
			p.line("do")
			p.block(2)
			p.line("end")
			p.line("::done%d::", label)
			return
		}
		for range 1 + p.IntN(3) {
			p.statement()
		}
	})
	p.line("end")
}

// hotLoop writes a loop that is compiled as a whole, since it calls nothing that is not. It reads
// and writes its tables, two of which may be the same, with keys that may be equal.
func (p *programmer) hotLoop() {
	p.line("do")
	p.indent++
	table := func() string {
		return p.pick("{}", "{1, 2, 3, 4}", "{x = 1, y = 2}", "{1, 2, x = 3, [0] = 4}", "{5, 6, 7, 3.54484805889626e-310}", "{[2.5] = 1, 2}", "a")
	}
	p.line("local a, k, x, y, s = {1, 2, 3, x = 4}, %d, %s, 0, 'x'", 1+p.IntN(4), p.pick("1", "0.5", "nil", "'t'", "true"))
	p.line("local b = %s", table())
	inside := p.IntN(2) == 0
	p.line("for i = 1, %d do", 20+p.IntN(100))
	p.indent++
	if inside {
		p.line("%s = %s", p.pick("a", "b"), p.pick(table(), table(), "{i, x}", "{x = i}", "{i, i, i}"))
	}
	key := func() string {
		return p.pick("[i]", "[i + 1]", "[i - 1]", "[k]", "[k + 1]", "[k]", "[1]", "[2]", "[3]", "[i % 3]", "[i % 4 + 1]", ".x", ".y", "[s]", "[0]", "[2.5]", "[x or 1]", "[i & 3]")
	}
	value := func() string {
		return p.pick("i", "x", "nil", "i * 2", "y", "k", "'v'", "s", "{i}", "a"+key(), "b"+key(), "i / 3", "-i", "true", "#s")
	}
	for range 2 + p.IntN(6) {
		switch p.IntN(10) {
		case 0, 1, 2, 3:
			p.line("%s%s = %s", p.pick("a", "b"), key(), value())
		case 4, 5:
			p.line("x = %s%s", p.pick("a", "b"), key())
		case 6:
			p.line("if type(%s) == 'number' then y = y %% 1e6 + %s end", "x", "x")
		case 7:
			p.line("if i %% %d == %d then %s end", 2+p.IntN(9), p.IntN(2), p.pick("a = b", "b = a", "k = i % 4 + 1", "a"+key()+" = "+value(), "x = "+value(), "s = s == 'x' and 'y' or 'x'", "b = {"+value()+"}"))
		case 8:
			p.line("y = y %% 1e6 + %s", p.pick("#s", "(i & k)", "k * i", "i % k", "math.floor(i / k)"))
		case 9:
			p.line("if %s == %s then y += 1 end", p.pick("x", "a"+key(), "b"+key()), value())
		}
	}
	p.line("if i %% 7 == 0 then tick() end")
	p.indent--
	p.line("end")
	p.line("note(a, b, k, x, y, s)")
	p.indent--
	p.line("end")
}

func (p *programmer) assign() {
	switch p.IntN(9) {
	case 0, 1, 2:
		p.line("%s = %s", p.variable('n'), p.number())
	case 3:
		p.line("%s = %s", p.variable('s'), p.text())
	case 4:
		p.line("%s = %s", p.variable('t'), p.table())
	case 5:
		p.line("%s, %s = %s, %s", p.variable('a'), p.variable('n'), p.any(), p.number())
	case 6:
		p.line("%s += %s", p.variable('n'), p.number())
	default:
		p.line("%s = %s", p.variable('a'), p.any())
	}
}
