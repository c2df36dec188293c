//go:build cgo && luajit

package luajit

import (
	"testing"
	"time"
)

// TestStringsAgainstTheLibrary compares our bounded string functions with the library's own, on
// random texts and patterns.
func TestStringsAgainstTheLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("it compares Lua code with C code")
	}
	opts := defaults()
	opts.BatchTime = time.Minute
	vm := open(t, opts)
	err := vm.runTrusted(`
		for _, t in pairs(debug.getregistry()) do
			if type(t) == "table" and t.pcall and t.pcall ~= pcall then t.real = string end
		end`)
	if err != nil {
		t.Fatal(err)
	}
	err = vm.Load("compare.lua", []byte(`
		local ours, real = string, real
		assert(ours.find ~= real.find)
		local function pick(from) return from[math.random(#from)] end
		local texts = {'a', 'b', 'ab', '(', ')', ' ', '\0', '9', 'é', '-'}
		local items = {'a', 'b', '.', '%a', '%d', '%s', '%W', '[ab]', '[^a]', '[a-c%d]', '[]x]', '[%]]', '%.', '%-', '%z', '[a-]'} -- a zero ends the library's patterns, not ours
		local parts = {'(', ')', '()', '%b()', '%f[%a]', '%1', '$', '^'}
		local suffixes = {'', '', '', '*', '+', '-', '?'}
		local function random(n, f)
			local t = {}
			for i = 1, math.random(0, n) do t[i] = f() end
			return table.concat(t)
		end
		local function pattern()
			return (math.random(4) == 1 and '^' or '') .. random(5, function()
				if math.random(4) == 1 then return pick(parts) end
				return pick(items) .. pick(suffixes)
			end)
		end
		local function show(ok, ...)
			local t = {tostring(ok)}
			for i = 1, select('#', ...) do t[#t + 1] = tostring((select(i, ...))) end
			if not ok then return 'error' end
			return table.concat(t, '|')
		end
		local function all(gmatch, s, p)
			local t = {}
			for a, b in gmatch(s, p) do
				t[#t + 1] = tostring(a) .. tostring(b)
				if #t > 100 then break end
			end
			return table.concat(t, ',')
		end
		math.randomseed(1)
		-- Of 21, one text is so long that a search in it remembers where it failed.
		local long = {'a', 'b', ' ', ' a', 'ab  ', '9'}
		local repeated = {'.-', '.*', '%s*', '%s-', '%s+', 'a?', '[ab]*', '(.-)', '(%s*)', '()', '%S+', 'b', '%f[%s]', '$', '%b  '}
		for i = 1, 21000 do
			local s, p = random(8, function() return pick(texts) end), pattern()
			if i % 21 == 0 then
				s = pick(long):rep(math.random(20, 50)) .. pick(long) .. pick(long):rep(math.random(0, 30))
				p = pick({'^', ''}) .. random(5, function() return pick(repeated) end) .. pick({'', '$', '9$', 'b'})
			end
			local init = pick({1, 1, 2, -1, 0, 5, 100, -100})
			local function same(name, ...)
				local want, got = show(pcall(real[name], ...)), show(pcall(ours[name], ...))
				if want ~= got then
					error(string.format('%s(%q, %q, %s): got %s, want %s', name, s, p, init, got, want))
				end
			end
			same('find', s, p, init)
			same('find', s, p, init, true)
			same('match', s, p, init)
			same('gsub', s, p, pick({'', 'x', '<%0>', '%%'}), pick({nil, 2}))
			same('gsub', s, p, function(a) if a == 'a' then return 'yes' end end)
			same('gsub', s, p, {a = 'A', b = false})
			same('rep', s, math.random(-1, 5), pick({nil, ',', s}))
			local a, want = pcall(all, real.gmatch, s, p)
			local b, got = pcall(all, ours.gmatch, s, p)
			if a ~= b or a and want ~= got then
				error(string.format('gmatch(%q, %q): got %s, want %s', s, p, got, want))
			end
		end`))
	if err != nil {
		t.Fatal(err)
	}
}

// TestStringsAlike makes long strings that differ in one byte, mostly one that LuaJIT's hash does
// not read. It looks them up in random order, which moves each to the front of its chain, while
// others are created and collected.
func TestStringsAlike(t *testing.T) {
	opts := defaults()
	opts.BatchTime = time.Minute
	err := open(t, opts).Load("alike.lua", []byte(`
		math.randomseed(7)
		for length = 1, 40 do
			local bytes, seen, made = ("x"):rep(length), {}, {}
			for _ = 1, 2000 do
				local at, n = math.random(length), math.random(0, 9)
				local s = bytes:sub(1, at - 1) .. n .. bytes:sub(at + 1)
				local key = at * 10 + n
				assert(#s == length and s:byte(at) == 48 + n, "another string")
				assert(seen[key] == nil or seen[key] == s, "one string is two")
				assert(made[s] == nil or made[s] == key, "two strings are one")
				seen[key], made[s] = s, key
			end
		end`))
	if err != nil {
		t.Fatal(err)
	}
}
