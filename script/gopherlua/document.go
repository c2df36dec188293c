package gopherlua

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// A proxy represents an object or an array of a document in Lua. It is userdata whose
// type is "table".
type proxy struct {
	container *pure.Container
	life      *life
}

// A life is the lifetime of documents: one call of main. That of a document from
// json.decode never ends.
type life struct{ ended bool }

var errEnded = errors.New("a document is used after its call of main has ended: keep the values you need, not the event")

// proxy returns what stands for c, always the same.
func (m *machine) proxy(c *pure.Container, of *life) *lua.LUserData {
	if ud, ok := c.Handle.(*lua.LUserData); ok {
		return ud
	}
	ud := &lua.LUserData{Value: &proxy{container: c, life: of}, Metatable: m.docMeta}
	c.Handle = ud
	return ud
}

func isProxy(v lua.LValue) bool {
	ud, ok := v.(*lua.LUserData)
	if !ok {
		return false
	}
	_, ok = ud.Value.(*proxy)
	return ok
}

// document returns the proxy in v, or nil. It raises an error if the proxy's life has
// ended.
func (m *machine) document(l *lua.LState, v lua.LValue) *proxy {
	ud, ok := v.(*lua.LUserData)
	if !ok {
		return nil
	}
	p, ok := ud.Value.(*proxy)
	if !ok {
		return nil
	}
	if p.life.ended {
		l.RaiseError("%s", errEnded.Error())
	}
	return p
}

func (m *machine) alive(p *proxy) (*proxy, error) {
	if p.life.ended {
		return nil, errEnded
	}
	return p, nil
}

// documentMeta returns the metatable of proxies.
func (m *machine) documentMeta() *lua.LTable {
	return m.metatable(map[string]lua.LGFunction{
		"__index":    m.docIndex,
		"__newindex": m.docNewIndex,
		"__len": func(l *lua.LState) int {
			l.Push(lua.LNumber(m.document(l, l.Get(1)).container.Len()))
			return 1
		},
		"__tostring": func(l *lua.LState) int {
			l.Push(lua.LString(fmt.Sprintf("table: %p", l.CheckUserData(1))))
			return 1
		},
	})
}

func (m *machine) docIndex(l *lua.LState) int {
	p := m.document(l, l.Get(1))
	l.Push(m.fromJSON(p.get(l.Get(2)), p.life))
	return 1
}

// get reads a key. Anything that cannot be a key reads as missing.
func (p *proxy) get(key lua.LValue) pure.Value {
	switch key := key.(type) {
	case lua.LString:
		return p.container.Get(string(key))
	case lua.LNumber:
		return p.container.At(float64(key))
	}
	return pure.Value{}
}

func (m *machine) docNewIndex(l *lua.LState) int {
	p := m.document(l, l.Get(1))
	if err := m.put(p.container, l.Get(2), l.Get(3)); err != nil {
		l.RaiseError("%s", err.Error())
	}
	return 0
}

// put writes a field or an element.
func (m *machine) put(c *pure.Container, key, v lua.LValue) error {
	if c.Kind() == pure.Array {
		return m.putAt(c, key, v)
	}
	name, ok := key.(lua.LString)
	if !ok {
		return fmt.Errorf("the key %s of an object must be a string, not a %s", key, key.Type())
	}
	if v == lua.LNil {
		return c.Remove(string(name))
	}
	if !utf8.ValidString(string(name)) {
		return fmt.Errorf("the key %q is not UTF-8", string(name))
	}
	value, err := m.toJSON(v)
	if err != nil {
		return pure.Within(string(name), err)
	}
	return c.Put(string(name), value)
}

func (m *machine) putAt(c *pure.Container, key, v lua.LValue) error {
	index, ok := key.(lua.LNumber)
	if !ok {
		return fmt.Errorf("an array has no key %q, only the indexes 1 to %d", key.String(), c.Len()+1)
	}
	var value pure.Value
	var err error
	switch {
	case v == lua.LNil && int(index) == c.Len():
		err = c.RemoveAt(float64(index))
	case v == lua.LNil && int(index) == c.Len()+1:
	default:
		if value, err = m.toJSON(v); err != nil {
			return pure.Within(index.String(), err)
		}
		err = c.PutAt(float64(index), value)
	}
	if errors.Is(err, pure.ErrNoIndex) {
		return fmt.Errorf("the array has %d elements: index %s cannot be written, only 1 to %d", c.Len(), index, c.Len()+1)
	}
	return err
}

// fromJSON converts a value of a document.
func (m *machine) fromJSON(v pure.Value, of *life) lua.LValue {
	switch v.Kind {
	case pure.False:
		return lua.LFalse
	case pure.True:
		return lua.LTrue
	case pure.Number:
		return lua.LNumber(v.Num)
	case pure.Big:
		return m.big(v.Text)
	case pure.String:
		return lua.LString(v.Text)
	case pure.Object, pure.Array:
		return m.proxy(v.Container, of)
	case pure.Foreign:
		return v.Foreign.(*table).table
	}
	return lua.LNil
}

// toJSON converts a value for a document. Documents are copied. A table remains the
// script's and is encoded when the document leaves.
func (m *machine) toJSON(v lua.LValue) (pure.Value, error) {
	switch v := v.(type) {
	case *lua.LNilType:
		return pure.Value{Kind: pure.Null}, nil
	case lua.LBool:
		if v {
			return pure.Value{Kind: pure.True}, nil
		}
		return pure.Value{Kind: pure.False}, nil
	case lua.LNumber:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return pure.Value{}, fmt.Errorf("the number %s cannot be written as JSON", spelled(float64(v)))
		}
		return pure.Value{Kind: pure.Number, Num: float64(v)}, nil
	case lua.LString:
		if !utf8.ValidString(string(v)) {
			return pure.Value{}, fmt.Errorf("the string %q is not UTF-8", clip(string(v)))
		}
		return pure.Value{Kind: pure.String, Text: string(v)}, nil
	case *lua.LTable:
		return pure.Value{Kind: pure.Foreign, Foreign: &table{machine: m, table: v}}, nil
	case *lua.LUserData:
		return m.userDataToJSON(v)
	}
	return pure.Value{}, fmt.Errorf("a %s cannot be written as JSON", v.Type())
}

func (m *machine) userDataToJSON(v *lua.LUserData) (pure.Value, error) {
	switch of := v.Value.(type) {
	case *big:
		return pure.Value{Kind: pure.Big, Text: of.text}, nil
	case *proxy:
		p, err := m.alive(of)
		if err != nil {
			return pure.Value{}, err
		}
		c, err := p.container.Copy()
		if err != nil {
			return pure.Value{}, err
		}
		return pure.Value{Kind: c.Kind(), Container: c}, nil
	case *routedValue:
		return pure.Value{}, errors.New("a userdata cannot be written as JSON")
	}
	return pure.Value{Kind: pure.Null}, nil
}

// appendJSON appends a value as JSON. It does not copy documents first.
func (m *machine) appendJSON(out []byte, v lua.LValue) ([]byte, error) {
	if ud, ok := v.(*lua.LUserData); ok {
		if p, ok := ud.Value.(*proxy); ok {
			if _, err := m.alive(p); err != nil {
				return out, err
			}
			return p.container.Append(out)
		}
	}
	value, err := m.toJSON(v)
	if err != nil {
		return out, err
	}
	return pure.AppendValue(out, value)
}

func spelled(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case x < 0:
		return "-inf"
	}
	return "inf"
}

// clip shortens a string for a message.
func clip(s string) string {
	const maxBytes = 64
	if len(s) <= maxBytes {
		return s
	}
	return s[:maxBytes] + "…"
}
