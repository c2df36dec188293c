--- string.dump: error
string.dump(function() end)
--- load of text: error
load('return 1')()
--- loadstring of bytecode: error
loadstring('\27LJ\2\0')()
--- dofile: error
dofile('/etc/passwd')
--- io: error
io.open('/etc/passwd')
--- os.execute: error
os.execute('true')
--- os.getenv: error
os.getenv('HOME')
--- os.exit: error
os.exit(1)
--- debug: error
debug.getinfo(1)
--- ffi: error
require('ffi').cast('char *', 1)
--- jit: error
jit.off()
--- package: error
package.loaded.ffi.cast('char *', 1)
--- getfenv: error
getfenv(0)
--- setfenv: error
setfenv(1, {})
--- newproxy: error
newproxy(true)
--- rawset: error
rawset(_G, 'x', 1)
--- collectgarbage: error
collectgarbage('stop')
--- module: error
module('x')
--- gcinfo: error
gcinfo()
--- a global: error
leaked = 1
--- a global through _G: error
_G.leaked = 1
--- a global through _G._G: error
_G._G._G.leaked = 1
--- a library replaced: error
string.upper = nil
--- a library replaced by a method: error
(''):upper().x = 1
--- the metatable of strings: error
getmetatable('').__index = nil
--- the metatable of the event: error
getmetatable(event).__index = nil
--- the metatable of the environment: error
getmetatable(_G).__newindex = nil
--- a metatable for the event: error
setmetatable(event, {})
--- a metatable for the environment: error
setmetatable(_G, {})
--- a metatable for text: error
setmetatable('x', {})
--- a metatable for a coroutine: error
setmetatable(coroutine.create(function() end), {})
--- a protected metatable: error
local t = setmetatable({}, {__metatable = 1})
setmetatable(t, {})
--- the host's functions: ok
for _, name in ipairs({'perigee_library', 'perigee_wait', 'perigee_log'}) do assert(_G[name] == nil) end
--- the host's functions through errors: ok
for _, f in ipairs({pcall, xpcall, error, table.insert, string.gsub, coroutine.wrap}) do
  local ok, e = pcall(f)
  assert(type(e) ~= 'function' and type(e) ~= 'userdata')
end
--- resume of the host's coroutine: ok
local co = coroutine.running()
if co then assert(not coroutine.resume(co)) end
--- resume of the host's coroutine from another: ok
local co = coroutine.running()
coroutine.wrap(function() if co then assert(not coroutine.resume(co)) end end)()
--- wrap of the host's coroutine: error
coroutine.wrap(coroutine.running())
--- yield out of the event: error
coroutine.yield(1)
--- yield out of pcall: error, ok
local ok, e = pcall(coroutine.yield, 1)
error(e)
--- yield in a metamethod: ok
local t = setmetatable({}, {__index = function(_, k) return coroutine.yield(k) end})
local co = coroutine.wrap(function() return t.x end)
assert(co() == 'x' and co(5) == 5)
--- yield in a comparison for ever: event time
local t = setmetatable({}, {__lt = function() coroutine.yield() return true end})
local co = coroutine.wrap(function() while t < t do end end)
while true do co() end
--- yield in a for iterator: event time
local co = coroutine.wrap(function() for _ in coroutine.yield do end end)
co()
while true do co(1) end
--- yield in gsub: event time
local co = coroutine.wrap(function() (('a'):rep(1e6)):gsub('a', coroutine.yield) end)
for i = 1, 1e9 do co() end
--- yield in sort: ok, error, event time
local co = coroutine.wrap(function() table.sort({3, 2, 1}, function(a, b) coroutine.yield() return a < b end) end)
for i = 1, 100 do co() end
--- yield in a table constructor: ok
local co = coroutine.wrap(function() return {coroutine.yield(1), coroutine.yield(2)} end)
co() co(3)
assert(co(4)[1] == 3)
--- a dead coroutine for ever: event time
local co = coroutine.create(function() end)
while true do coroutine.resume(co) end
--- a dead coroutine wrapped: error
local f = coroutine.wrap(function() end)
f() f()
--- coroutines that resume each other: event time, error, ok
local a, b
a = coroutine.create(function() while true do coroutine.resume(b) end end)
b = coroutine.create(function() return coroutine.resume(a) end)
coroutine.resume(b)
error(coroutine.status(a))
--- a chain of coroutines: stack overflow, error, memory, event time, ok
local function chain(n)
  local x = coroutine.wrap(function() local y = chain(n + 1) return y end)()
  return x
end
local x = chain(1)
--- a ring of generators: event time
local gens = {}
for i = 1, 100 do
  gens[i] = coroutine.wrap(function() while true do coroutine.yield(i) end end)
end
while true do for i = 1, 100 do gens[i]() end end
--- coroutines collected while they wait: event time
while true do
  local co = coroutine.create(function() local t = {} coroutine.yield(t) end)
  coroutine.resume(co)
end
--- deep stacks in many coroutines: memory
local kept = {}
local function deep(n) if n == 0 then coroutine.yield() else return 1 + deep(n - 1) end end
while true do kept[#kept + 1] = coroutine.wrap(deep) kept[#kept](5000) end
--- a deep stack, again and again: event time
local function deep(n) if n == 0 then return 0 end return 1 + deep(n - 1) end
while true do deep(10000) end
--- a deep stack in coroutines, again and again: event time
local function deep(n) if n == 0 then return 0 end return 1 + deep(n - 1) end
while true do coroutine.wrap(deep)(10000) end
--- an error in a dead end of coroutines: error
coroutine.wrap(function() coroutine.wrap(function() coroutine.wrap(error)('deep') end)() end)()
--- errors in coroutines for ever: event time
while true do pcall(coroutine.wrap(function() error({}) end)) end
--- an error object of a coroutine: error
error(coroutine.create(function() end))
--- an error object of nil: error
error(nil)
--- an error object of a function: error
error(function() while true do end end)
--- an error object of the event: error
error(event)
--- an error object of a part of the event: error
error(event.list)
--- an error object that is huge: error, memory
error(('x'):rep(10e6))
--- an error object that is deep: error, event time
local t = {}
for i = 1, 100000 do t = {t} end
error(t)
--- an error object that is a cycle: error
local t = {}
t.t = t
error(t)
--- an error object that is wide: error, memory, event time
local t = {}
for i = 1, 500000 do t[i] = i end
error(t)
--- an error object whose __index loops: error, event time
error(setmetatable({}, {__index = function() while true do end end}))
--- an error object whose __tostring fails: error
error(setmetatable({}, {__tostring = function() error('again') end}))
--- an error object whose __tostring yields: error
error(setmetatable({}, {__tostring = function() coroutine.yield() end}))
--- an error object whose __tostring returns no text: error
error(setmetatable({}, {__tostring = function() return {} end}))
--- an error object whose __tostring grows: error, memory
error(setmetatable({}, {__tostring = function() local s = 'x' while true do s = s .. s end end}))
--- an error object whose __metatable lies: error
error(setmetatable({}, {__metatable = 'x', __tostring = function() return ('x'):rep(1e5) end}))
--- an error with control characters: error
error('\27[2J\0\1\r\n')
--- an error that is not UTF-8: error
error('\255\254')
--- an error that looks like a place: error
error('hostile.lua:99999999999: x', 0)
--- an error that looks like a limit: error
error('memory limit exceeded')
--- an error with formats: error
error('%s%n%d%99999d', 0)
--- an error in a long line: error
local x = nil local y = x .x
--- an error of a call through many names: error
local t = {a = {b = {c = {}}}}
t.a.b.c.d.e()
--- an error of arithmetic on the event: error
return event + 1
--- an error of a comparison with the event: error
return event < event
--- an error of a concatenation of the event: error
return event .. 'x'
--- an error of a call of the event: error
event()
--- the length of the event for ever: event time
while true do local n = #event end
--- assert of nothing: error
assert()
--- assert of false with a table: error
assert(false, {1, 2, 3})
--- assert of many: ok
assert(unpack({1, 2, 3}, 1, 3))
--- pcall of nothing: ok, error
pcall()
--- pcall of no function: ok
assert(pcall(1) == false)
--- pcall of pcall of pcall for ever: event time
while true do pcall(pcall, pcall, pcall, pcall, error, 1) end
--- pcall with many values: event time, error
while true do pcall(function(...) return ... end, unpack({}, 1, 5000)) end
--- pcall in deep recursion for ever: event time
local function f(n) if n > 0 then pcall(f, n - 1) end error(n) end
while true do pcall(f, 150) end
--- pcall around memory: memory
local kept = {}
while true do pcall(function() for i = 1, 1000 do kept[#kept + 1] = {i} end end) end
--- pcall around a stack overflow for ever: event time
local function f() return 1 + f() end
while true do pcall(f) end
--- a storm of pcall and error objects: event time
local function f() error({code = 1, text = 'x'}) end
while true do for i = 1, 100 do pcall(f) end end
--- xpcall of nothing: ok, error
xpcall()
--- xpcall without a handler: error, ok
xpcall(error)
--- xpcall whose handler recurses: stack overflow, error, ok
local function h(e) return h(e) + 1 end
error(select(2, xpcall(error, h)))
--- xpcall whose handler allocates: memory
local kept = {}
xpcall(error, function() while true do kept[#kept + 1] = {} end end)
--- xpcall whose handler yields: error, ok
xpcall(error, coroutine.yield)
--- xpcall whose handler is itself: event time, error, ok, stack overflow
xpcall(error, xpcall)
while true do xpcall(error, pcall, error) end
--- xpcall within its handler: event time
local function h() xpcall(error, h) end
while true do pcall(h) end
--- xpcall with many values: event time, error
while true do xpcall(function(...) return ... end, print, unpack({}, 1, 5000)) end
--- __index of an __index of an __index: event time
local t = {}
for i = 1, 90 do t = setmetatable({}, {__index = t}) end
while true do local x = t.missing end
--- __index that changes its metatable: event time
local t
t = setmetatable({}, {__index = function(_, k) setmetatable(t, {__index = function() return k end}) return k end})
while true do local x = t.a setmetatable(t, {__index = function(_, k) return k end}) end
--- __newindex to itself: error
local t = {}
setmetatable(t, {__newindex = t})
t.x = 1
--- __newindex that recurses: stack overflow
local t = setmetatable({}, {})
getmetatable(t).__newindex = function(self, k, v) self[k + 1] = v end
t[1] = 1
--- __call of a __call: stack overflow, error, event time, ok
local t = setmetatable({}, {})
getmetatable(t).__call = t
t()
--- __call chain: stack overflow, error, ok
local t = function() end
for i = 1, 1000 do t = setmetatable({}, {__call = t}) end
t()
--- __concat that grows: memory
local t = setmetatable({}, {__concat = function(a, b) return ('x'):rep(1e6) end})
local s = ''
while true do s = s .. (t .. t) end
--- __concat that recurses: stack overflow
local t = setmetatable({}, {})
getmetatable(t).__concat = function(a, b) return a .. b end
return t .. t
--- __eq that recurses: stack overflow
local mt = {}
mt.__eq = function(a, b) return a == b end
return setmetatable({}, mt) == setmetatable({}, mt)
--- __lt that recurses: stack overflow
local mt = {}
mt.__lt = function(a, b) return a < b end
return setmetatable({}, mt) < setmetatable({}, mt)
--- __le that loops: event time
local mt = {__le = function() while true do end end}
return setmetatable({}, mt) <= setmetatable({}, mt)
--- __unm that recurses: stack overflow
local mt = {}
mt.__unm = function(a) return -a end
return -setmetatable({}, mt)
--- __len that recurses: stack overflow
local mt = {}
mt.__len = function(a) return #a end
return #setmetatable({}, mt)
--- __mod and __pow that loop: event time
local mt = {__mod = function() while true do end end, __pow = function() while true do end end}
return setmetatable({}, mt) % 2
--- __div that fails in pcall: event time
local t = setmetatable({}, {__div = function() error('x') end})
while true do pcall(function() return t / t end) end
--- __tostring that returns the event: ok, error
return tostring(setmetatable({}, {__tostring = function() return event end}))
--- __tostring that recurses: stack overflow, error
local t = setmetatable({}, {})
getmetatable(t).__tostring = function(self) return tostring(self) end
return tostring(t)
--- __ipairs that loops: event time, ok
for _ in ipairs(setmetatable({}, {__ipairs = function() return function() return 1 end end})) do end
--- __pairs that returns no function: error
for _ in pairs(setmetatable({}, {__pairs = function() return 1 end})) do end
--- __pairs that recurses: stack overflow
local t = setmetatable({}, {})
getmetatable(t).__pairs = function(self) return pairs(self) end
for _ in pairs(t) do end
--- __mode of weak keys: event time
local t = setmetatable({}, {__mode = 'k'})
while true do t[{}] = {} end
--- __mode of weak values: event time
local t, i = setmetatable({}, {__mode = 'v'}), 0
while true do i = i + 1 t[i % 1000] = {} end
--- weak tables of weak tables: event time, memory
local t = setmetatable({}, {__mode = 'kv'})
while true do t[setmetatable({}, {__mode = 'kv'})] = t end
--- goto into a storm: event time
local i = 0
::top::
i = i + 1
if i % 2 == 0 then goto top end
do goto top end
--- goto continue for ever: event time
while true do
  for i = 1, 10 do
    if i % 2 == 0 then goto continue end
    ::continue::
  end
end
--- continue for ever: event time
while true do continue end
--- nested loops with breaks: event time
while true do while true do while true do break end break end end
--- repeat with locals of its condition: event time
repeat local done = false until done
--- while over a compiled pcall storm: event time
local ok = true
while ok do ok = pcall(string.sub, 'x', 1) end
--- upvalues without end: event time
local f = function() return 0 end
while true do
  local g, n = f, 0
  f = function() n = n + 1 return n < 10 and n or 0 end
  g()
end
--- closures kept: memory
local kept = {}
while true do local x = {} kept[#kept + 1] = function() return x end end
--- a table with itself as key: event time
local t = {}
while true do t[t] = t t[t][t] = nil end
--- tables as keys: memory
local t = {}
while true do t[{}] = 1 end
--- functions as keys: memory
local t = {}
while true do t[function() return t end] = 1 end
--- fractions as keys: memory
local t, i = {}, 0
while true do i = i + 0.5 t[i + 0.25] = i end
--- numbers that share a hash as keys: memory, event time
local t = {}
for i = 1, 1e9 do t[i * 2^40] = i end
--- denormals as keys: memory, event time
local t = {}
for i = 1, 1e9 do t[i * 4.9406564584125e-324] = i end
--- keys made and removed: event time
local t = {}
for i = 1, 1e9 do t[i] = i t[i - 10] = nil end
--- a table that grows and shrinks: event time
local t = {}
while true do
  for i = 1, 1000 do t['k' .. i] = i end
  for k in pairs(t) do t[k] = nil end
end
--- pairs over a table that it fills: error, ok, event time, memory
local t, n = {a = 1}, 0
for k in pairs(t) do
  n = n + 1
  if n == 1000 then break end
  for i = 1, 100 do t[n * 100 + i] = k end
end
--- a compiled loop that changes types: event time
local x = 1
while true do
  if x == 1 then x = 'a' elseif x == 'a' then x = {} elseif type(x) == 'table' then x = nil elseif x == nil then x = true else x = 1 end
end
--- a compiled loop that overflows integers: event time
local i = 2^31 - 100
while true do i = i + 1 if i > 2^53 then i = -2^53 end end
--- a compiled loop over nan: event time
local x = 0 / 0
while x ~= x do x = x + 1 end
--- a compiled loop over -0: event time
local x = -0
while x == 0 do x = x * -1 end
--- a loop to the end of integers: ok
local n = 0
for i = 2147483640, 2147483647 do n = n + 1 end
for i = -2147483640, -2147483648, -1 do n = n + 1 end
assert(n == 17)
--- a loop over the end of doubles: event time
for i = 2^53, 2^53 + 2 do end
--- a loop with a step of nan: ok, error, event time
for i = 1, 2, 0 / 0 do end
--- a loop from text: error
for i = 'a', 2 do end
--- a loop that calls its bound: event time
for i = 1, (function() while true do end end)() do end
--- a trace that calls what fails late: error
local function f(i) if i == 500 then return nil + i end return i end
local s = 0
for i = 1, 1000 do s = s + f(i) end
--- a trace that yields late: ok
local co = coroutine.wrap(function() for i = 1, 1000 do if i > 500 then coroutine.yield(i) end end end)
for i = 1, 400 do co() end
--- sunk allocations that come back: ok
local kept
for i = 1, 500 do
  local t = {i, {i}}
  if i == 400 then kept = t end
end
assert(kept[2][1] == 400)
--- a buffer of strings in a trace: event time
local s = ''
while true do s = ('x' .. #s):rep(3):sub(1, 20):upper() end
--- numbers as text in a trace: event time
local i = 0
while true do i = i + 1 local s = tostring(i / 3) .. i local n = tonumber(s) end
--- varargs in a trace: event time
local function f(...) local a, b = ... return select('#', ...), a, b end
while true do f() f(1) f(1, 2) f(1, 2, 3) end
--- a switch of functions in a trace: event time
local fs = {math.floor, math.ceil, math.abs, tostring, function(x) return x end}
local i = 0
while true do i = i + 1 local _ = fs[i % #fs + 1](i) end
--- ?? and ?. in a trace: event time
local t = {}
while true do local x = t?.a?.b ?? 1 t.a = x == 1 ? {b = 2} : nil end
--- the event kept and read later: ok
local co = coroutine.wrap(function(e) while true do e = coroutine.yield(e.a) end end)
assert(co(event) == 1)
--- the event in a closure: ok
local function read() return event.a end
assert(read() == 1)
--- the event as a key: ok
local t = {[event] = 1, [event.list] = 2}
assert(t[event] == 1)
--- the event in a weak table: event time
local t = setmetatable({}, {__mode = 'kv'})
while true do t[event.sub] = event.list end
--- a field of megabytes: memory
local s = ('x'):rep(1e6)
for i = 1, 1e9 do event['k' .. i] = s end
--- a key of megabytes: ok, memory
event[('k'):rep(1e6)] = 1
--- a key with a zero: ok
event['a\0b'] = 1
assert(event['a\0b'] == 1)
--- a key that is not UTF-8: error
event['\255'] = 1
--- a value that is not UTF-8 in outputs: error, ok
return {x = '\255'}
--- a function in outputs: error
return {x = function() end}
--- a coroutine in outputs: error
return {x = coroutine.create(function() end)}
--- nan in outputs: error
return {x = 0 / 0}
--- keys of both kinds in outputs: error
return {1, 2, x = 3}
--- the same table often in outputs: output, memory, error, ok
local t = {x = ('x'):rep(1e5)}
local all = {}
for i = 1, 1000 do all[i] = t end
return all
--- to an unknown sink: error
local routed = to('nowhere', event)
return routed
--- to without an event: error
local routed = to('nowhere')
return routed
