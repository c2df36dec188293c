//go:build cgo && luajit

package luajit

import (
	"errors"
	"strings"
	"testing"
)

// TestSandbox runs assertions inside scripts.
func TestSandbox(t *testing.T) {
	absent := strings.Fields(`collectgarbage debug dofile ffi gcinfo getfenv io jit load loadfile
		loadstring module newproxy os package rawget rawset require setfenv perigee_library`)
	for _, name := range absent {
		t.Run("no "+name, func(t *testing.T) { load(t, "assert("+name+" == nil)") })
	}
	tests := []struct{ name, code string }{
		{"no string.dump", "assert(string.dump == nil and ('').dump == nil)"},
		{"no way to the string metatable", "assert(getmetatable('') == false)"},
		{"no way to the environment", "assert(getmetatable(_G) == false)"},
		{"_G reads globals", "x = 1 assert(_G.x == 1 and _G._G == _G)"},
		{"libraries are read-only", "assert(not pcall(function() string.upper = nil end)) assert(('x'):upper() == 'X')"},
		{"libraries hide their metatable", "assert(getmetatable(string) == false) assert(not pcall(setmetatable, string, {}))"},
		{"libraries can be listed", "local n = 0 for k, v in pairs(math) do n = n + 1 assert(math[k] == v) end assert(n > 20)"},
		{"globals of the main chunk stay", "function f() return 1 end assert(f() == 1)"},
		{"setmetatable works", "assert(setmetatable({}, {__index = {a = 1}}).a == 1)"},
		{"__len and __pairs work", "assert(#setmetatable({}, {__len = function() return 7 end}) == 7)"},
		{"unlike operands compare", "local mt = {__lt = function() return true end} assert(setmetatable({}, mt) < 1)"},
		{"format takes objects", "assert(('%s %d'):format(setmetatable({}, {__tostring = function() return 'o' end}), 3) == 'o 3')"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { load(t, test.code) })
	}
}

func TestGlobalsCannotBeAssignedOnceLoaded(t *testing.T) {
	tests := []struct{ name, body string }{
		{"new", "count = 1"},
		{"known", "known = known + 1"},
		{"through _G", "_G.count = 1"},
		{"a function", "function helper() end"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			vm := load(t, "known = 1\nfunction main()\n"+test.body+"\nend")
			var f *Error
			if err := vm.Call("main"); !errors.As(err, &f) {
				t.Fatalf("got %v, want a fault", err)
			}
			if f.Line != 3 || !strings.Contains(f.Message, "write 'local ") {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestProtectedCalls(t *testing.T) {
	tests := []struct{ name, code string }{
		{"values", "local a, b, c = pcall(function(...) return ... end, 1, nil) assert(a == true and b == 1 and c == nil)"},
		{"count of values", "assert(select('#', pcall(function() return nil, nil end)) == 3)"},
		{"error text has its place", "local ok, e = pcall(function() error('x') end) assert(not ok and e == 'email.lua:1: x')"},
		{"error object", "local o = {} local ok, e = pcall(error, o) assert(e == o)"},
		{"nil error", "local ok, e = pcall(error) assert(ok == false and e == nil)"},
		{"not a function", "assert(not pcall(3))"},
		{"nested", "assert(select(3, pcall(pcall, error, 'x')) == 'x')"},
		{"xpcall handler", "local ok, e = xpcall(error, function(e) return e .. '!' end, 'x') assert(not ok and e == 'x!')"},
		{"xpcall values", "local ok, v = xpcall(function(a) return a end, print, 4) assert(ok and v == 4)"},
		{"reuse after errors", "for i = 1, 100 do assert(not pcall(error, i)) assert(pcall(type, i)) end"},
		{"yield across", `local co = coroutine.wrap(function(a)
			local ok, b = pcall(function(x) return coroutine.yield(x) end, a) return ok, b end)
			assert(co(1) == 1) local ok, b = co(2) assert(ok == true and b == 2)`},
		{"error after a yield across", `local co = coroutine.wrap(function()
			return pcall(function() coroutine.yield() error('late', 0) end) end)
			co() local ok, e = co() assert(ok == false and e == 'late')`},
		{"running is the script's own", `coroutine.wrap(function()
			local outer = coroutine.running()
			pcall(function() assert(coroutine.running() == outer) end) end)()`},
		{"status", `local co = coroutine.create(function() coroutine.yield() end)
			assert(coroutine.status(co) == 'suspended') coroutine.resume(co) coroutine.resume(co)
			assert(coroutine.status(co) == 'dead')`},
		{"dead", "local co = coroutine.create(function() end) coroutine.resume(co) local ok, e = coroutine.resume(co) assert(not ok and e:find('not suspended'))"},
		{"itself", "local co co = coroutine.create(function() return coroutine.resume(co) end) local a, b = coroutine.resume(co) assert(a and b == false)"},
		{"wrap raises", "local ok, e = pcall(coroutine.wrap(function() error({}) end)) assert(not ok and type(e) == 'table')"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { load(t, test.code) })
	}
}

func TestSort(t *testing.T) {
	load(t, `
		for n = 0, 200, 7 do
			local t = {}
			for i = 1, n do t[i] = {key = i * 7919 % 13, at = i} end
			table.sort(t, function(a, b) return a.key < b.key end)
			for i = 2, n do
				local a, b = t[i - 1], t[i]
				assert(a.key < b.key or a.key == b.key and a.at < b.at, 'stable and in order')
			end
		end
		local t = {'b', 'c', 'a'}
		table.sort(t)
		assert(table.concat(t) == 'abc')
		assert(not pcall(table.sort, {1, 'x'}))
		assert(not pcall(table.sort, 1))
	`)
}
