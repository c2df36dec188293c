package main

import (
	"encoding/json"
	"strconv"

	"github.com/buger/jsonparser"
	lua "github.com/yuin/gopher-lua"
)

const trimLua = `
local keys = { "key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9", "key10" }
function main(event)
  for _, key in ipairs(keys) do event[key] = nil end
  return event
end`

// gopherLua is one VM of a pool of gopher-lua states.
type gopherLua struct {
	state *lua.LState
	main  lua.LValue
}

func newGopherLua(script string) *gopherLua {
	state := lua.NewState()
	must(state.DoString(script))
	return &gopherLua{state: state, main: state.GetGlobal("main")}
}

func (g *gopherLua) call(event lua.LValue) *lua.LTable {
	must(g.state.CallByParam(lua.P{Fn: g.main, NRet: 1, Protect: true}, event))
	result := g.state.Get(-1).(*lua.LTable)
	g.state.Pop(1)
	return result
}

// throughMap converts through encoding/json and a Go map in both directions, as json.decode
// and json.encode of the common modules do.
func (g *gopherLua) throughMap(doc []byte) []byte {
	var decoded map[string]any
	must(json.Unmarshal(doc, &decoded))
	out, err := json.Marshal(toGo(g.call(g.toTable(decoded))))
	must(err)
	return out
}

func (g *gopherLua) toTable(m map[string]any) *lua.LTable {
	t := g.state.CreateTable(0, len(m))
	for key, value := range m {
		switch v := value.(type) {
		case string:
			t.RawSetString(key, lua.LString(v))
		case float64:
			t.RawSetString(key, lua.LNumber(v))
		case bool:
			t.RawSetString(key, lua.LBool(v))
		}
	}
	return t
}

func toGo(t *lua.LTable) map[string]any {
	m := make(map[string]any, t.Len())
	t.ForEach(func(key, value lua.LValue) {
		switch v := value.(type) {
		case lua.LString:
			m[key.String()] = string(v)
		case lua.LNumber:
			m[key.String()] = float64(v)
		case lua.LBool:
			m[key.String()] = bool(v)
		}
	})
	return m
}

// direct parses the bytes into a Lua table and encodes the table without a map between:
// the fastest way to use gopher-lua.
func (g *gopherLua) direct(doc, out []byte) []byte {
	t := g.state.CreateTable(0, 16)
	must(jsonparser.ObjectEach(doc, func(key, value []byte, kind jsonparser.ValueType, _ int) error {
		switch kind {
		case jsonparser.String:
			text, err := jsonparser.ParseString(value)
			must(err)
			t.RawSetString(string(key), lua.LString(text))
		case jsonparser.Number:
			number, err := jsonparser.ParseFloat(value)
			must(err)
			t.RawSetString(string(key), lua.LNumber(number))
		}
		return nil
	}))
	return appendTable(out, g.call(t))
}

func appendTable(out []byte, t *lua.LTable) []byte {
	out = append(out, '{')
	first := true
	t.ForEach(func(key, value lua.LValue) {
		if !first {
			out = append(out, ',')
		}
		first = false
		out = strconv.AppendQuote(out, key.String())
		out = append(out, ':')
		switch v := value.(type) {
		case lua.LString:
			out = strconv.AppendQuote(out, string(v))
		case lua.LNumber:
			out = strconv.AppendFloat(out, float64(v), 'g', -1, 64)
		}
	})
	return append(out, '}')
}
