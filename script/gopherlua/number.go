package gopherlua

import (
	"math"
	"strconv"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// A big is an immutable JSON number that a float64 cannot hold, as it is spelled.
type big struct{ text string }

func (m *machine) big(text string) *lua.LUserData {
	return &lua.LUserData{Value: &big{text: text}, Metatable: m.bigMeta}
}

func bigOf(v lua.LValue) (*big, bool) {
	ud, ok := v.(*lua.LUserData)
	if !ok {
		return nil, false
	}
	b, ok := ud.Value.(*big)
	return b, ok
}

func (b *big) float() float64 {
	x, _ := strconv.ParseFloat(b.text, 64)
	return x
}

// bigMetatable returns the metatable of big numbers.
func (m *machine) bigMetatable() *lua.LTable {
	compare := func(holds func(order int) bool) lua.LGFunction {
		return func(l *lua.LState) int {
			a, ok := bigOf(l.Get(1))
			b, okToo := bigOf(l.Get(2))
			if !ok || !okToo {
				l.RaiseError("attempt to compare a number with another userdata")
			}
			l.Push(lua.LBool(holds(pure.Compare(a.text, b.text))))
			return 1
		}
	}
	return m.metatable(map[string]lua.LGFunction{
		"__eq":  compare(func(order int) bool { return order == 0 }),
		"__lt":  compare(func(order int) bool { return order < 0 }),
		"__le":  compare(func(order int) bool { return order <= 0 }),
		"__add": m.arithmetic(addInt, func(a, b float64) float64 { return a + b }),
		"__sub": m.arithmetic(subInt, func(a, b float64) float64 { return a - b }),
		"__mul": m.arithmetic(mulInt, func(a, b float64) float64 { return a * b }),
		"__mod": m.arithmetic(modInt, func(a, b float64) float64 { return a - math.Floor(a/b)*b }),
		"__div": m.arithmetic(noInt, func(a, b float64) float64 { return a / b }),
		"__pow": m.arithmetic(noInt, math.Pow),
		"__unm": func(l *lua.LState) int {
			l.Insert(lua.LNumber(0), 1)
			return m.arithmetic(subInt, func(a, b float64) float64 { return a - b })(l)
		},
		"__tostring": func(l *lua.LState) int {
			b, _ := bigOf(l.Get(1))
			l.Push(lua.LString(b.text))
			return 1
		},
		"__concat": func(l *lua.LState) int {
			l.Push(lua.LString(concatOperand(l, l.Get(1)) + concatOperand(l, l.Get(2))))
			return 1
		},
	})
}

func concatOperand(l *lua.LState, v lua.LValue) string {
	if b, ok := bigOf(v); ok {
		return b.text
	}
	if !lua.LVCanConvToString(v) {
		l.RaiseError("attempt to concatenate a number and a %s", v.Type())
	}
	return v.String()
}

// arithmetic computes exactly while operands and result are 64-bit integers.
func (m *machine) arithmetic(exact func(a, b int64) (int64, bool), inexact func(a, b float64) float64) lua.LGFunction {
	return func(l *lua.LState) int {
		x, y := operandOf(l, l.Get(1)), operandOf(l, l.Get(2))
		if x.whole && y.whole {
			if sum, ok := exact(x.i, y.i); ok {
				l.Push(m.integer(sum))
				return 1
			}
		}
		l.Push(lua.LNumber(inexact(x.f, y.f)))
		return 1
	}
}

// An operand is an integer when it is spelled without point and exponent.
type operand struct {
	i     int64
	whole bool // i is exact
	f     float64
}

func operandOf(l *lua.LState, v lua.LValue) operand {
	if b, ok := bigOf(v); ok {
		i, err := strconv.ParseInt(b.text, 10, 64)
		return operand{i, err == nil, b.float()}
	}
	if s, ok := v.(lua.LString); ok {
		if x, err := strconv.ParseFloat(string(s), 64); err == nil {
			v = lua.LNumber(x)
		}
	}
	x, ok := v.(lua.LNumber)
	if !ok {
		l.RaiseError("attempt to perform arithmetic on a number and a %s", v.Type())
	}
	f := float64(x)
	whole := f == math.Trunc(f) && math.Abs(f) < 1<<63
	if !whole {
		return operand{f: f}
	}
	return operand{int64(f), true, f}
}

// integer is a plain number where a double holds it.
func (m *machine) integer(i int64) lua.LValue {
	if x := float64(i); math.Abs(x) < 1<<63 && int64(x) == i {
		return lua.LNumber(x)
	}
	return m.big(strconv.FormatInt(i, 10))
}

func noInt(_, _ int64) (int64, bool) { return 0, false }

func addInt(a, b int64) (int64, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}

func subInt(a, b int64) (int64, bool) {
	difference := a - b
	return difference, (difference < a) == (b > 0)
}

func mulInt(a, b int64) (int64, bool) {
	product := a * b // MinInt64 * -1 is MinInt64, and MinInt64 / -1 too
	return product, a == 0 || product/a == b && (a != -1 || b != math.MinInt64)
}

// modInt has the sign of b, as in Lua.
func modInt(a, b int64) (int64, bool) {
	if b == 0 || b == -1 {
		return 0, b == -1
	}
	rest := a % b
	if rest != 0 && (rest < 0) != (b < 0) {
		rest += b
	}
	return rest, true
}
