package lua_test

import (
	"strings"
	"testing"

	"github.com/perigeedb/perigee/script/lua"
)

// TestEngine holds the name of the language, which configurations use, and what is
// said of the engine.
func TestEngine(t *testing.T) {
	if name := lua.Language().Name; name != "lua" {
		t.Errorf("the language is called %q", name)
	}
	onLuaJIT := strings.HasPrefix(lua.Engine(), "LuaJIT 2.1")
	if !onLuaJIT && !strings.HasPrefix(lua.Engine(), "gopher-lua") {
		t.Errorf("engine %q", lua.Engine())
	}
	if onLuaJIT != (lua.Slower() == "") {
		t.Errorf("engine %q with %q", lua.Engine(), lua.Slower())
	}
}
