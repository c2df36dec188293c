--- while: event time
while true do end
--- while with work: event time
local x = 0
while true do x = x + 1 % 7 end
--- repeat: event time
repeat local x = 1 until false
--- goto: event time
::again::
goto again
--- for without end: event time
for i = 1, math.huge do end
--- for with a step of zero: event time
for i = 1, 2, 0 do end
--- for with a tiny step: event time
for i = 1, 2, 1e-300 do end
--- for with a huge range: event time
local s = 0
for i = -1e15, 1e15 do s = s + i end
--- nested loops: event time
for i = 1, 1e9 do for j = 1, 3 do end end
--- for over a pure function: event time
for _ in function() return 1 end do end
--- next that never ends: event time
local t = {1}
while true do for k in pairs(t) do t[k] = k end end
--- tail calls: event time
local function f(n) return f(n + 1) end
f(0)
--- mutual tail calls: event time
local odd
local function even(n) return odd(n + 1) end
odd = function(n) return even(n + 1) end
even(0)
--- branches without bias: event time
local n = 1
while true do
  if n % 2 == 0 then n = n / 2 elseif n % 3 == 0 then n = n * 5 + 1 else n = n * 3 + 1 end
  if n > 1e12 then n = 27 end
end
--- trace churn: event time
local fs = {}
while true do
  for i = 1, 50 do fs[i] = function(a) if a % i == 0 then return a + i end return a - i end end
  for i = 1, 50 do for j = 1, 60 do fs[i](j) end end
end
--- closures without end: event time
local f
while true do local x = 1 f = function() return x, f end end
--- pcall swallows: event time
while true do pcall(function() while true do end end) end
--- pcall of error: event time
while true do pcall(error, 'x') end
--- pcall in a compiled loop: event time
local function f(i) return i + 1 end
local i = 0
while true do local _, v = pcall(f, i) i = v end
--- pcall of pcall: event time
while true do pcall(pcall, pcall, pcall, function() while true do end end) end
--- pcall tail call: event time
local function f() return pcall(f) end
while true do f() end
--- pcall recursion: event time, stack overflow
local function f() pcall(f) pcall(f) end
f()
--- xpcall with a looping handler: event time
xpcall(error, function() while true do end end)
--- xpcall swallows: event time
while true do xpcall(function() while true do end end, function(e) return e end) end
--- xpcall whose handler fails: event time
while true do xpcall(error, function() error('again') end) end
--- coroutine that spins: event time
coroutine.wrap(function() while true do end end)()
--- coroutine swallows: event time
while true do coroutine.resume(coroutine.create(function() while true do end end)) end
--- coroutine that yields for ever: event time
local next = coroutine.wrap(function() while true do coroutine.yield() end end)
while true do next() end
--- coroutines without end: event time
while true do coroutine.wrap(function() coroutine.yield() end)() end
--- coroutines kept: memory
local kept = {}
while true do kept[#kept + 1] = coroutine.create(function() end) coroutine.resume(kept[#kept]) end
--- coroutine recursion: stack overflow, error, event time
local function f() return coroutine.wrap(f)() end
f()
--- coroutine recursion through pcall: event time, error, ok
local function f() pcall(coroutine.wrap(f)) pcall(coroutine.wrap(f)) end
f()
--- coroutine resumes itself: event time
local co
co = coroutine.create(function() while true do coroutine.resume(co) end end)
coroutine.resume(co)
--- pcall in coroutine in pcall: event time
local function spin() while true do end end
while true do pcall(coroutine.wrap(function() pcall(spin) end)) end
--- yield across pcall: event time
local co = coroutine.wrap(function() while true do pcall(coroutine.yield, 1) end end)
while true do co() end
--- __index that loops: event time
local t = setmetatable({}, {__index = function() while true do end end})
return t.x
--- __index that recurses: stack overflow
local t = setmetatable({}, {})
getmetatable(t).__index = function(_, k) return t[k + 1] end
return t[1] + 1
--- __index chain: error
local t = {}
setmetatable(t, {__index = t})
return t.x
--- __newindex that swallows: event time
local t = setmetatable({}, {__newindex = function() pcall(function() while true do end end) end})
while true do t.x = 1 end
--- __add that loops: event time
local t = setmetatable({}, {__add = function() while true do end end})
return t + 1
--- __concat that loops: event time
local t = setmetatable({}, {__concat = function() while true do end end})
return t .. 'x'
--- __eq that loops: event time
local mt = {__eq = function() while true do end end}
return setmetatable({}, mt) == setmetatable({}, mt)
--- __lt in sort: event time
local mt = {__lt = function() while true do end end}
table.sort({setmetatable({}, mt), setmetatable({}, mt)})
--- __len that loops: event time
return #setmetatable({}, {__len = function() while true do end end})
--- __call that recurses: event time
local t = setmetatable({}, {})
getmetatable(t).__call = function(self, n) return self(n + 1) end
t(1)
--- __tostring that loops: event time
return tostring(setmetatable({}, {__tostring = function() while true do end end}))
--- __tostring through format: stack overflow, error
local t
t = setmetatable({}, {__tostring = function() return string.format('%s', t) end})
return tostring(t)
--- __tostring through print: stack overflow, error
local t
t = setmetatable({}, {__tostring = function() print(t) return 'x' end})
print(t)
--- error object whose __tostring loops: error, event time
error(setmetatable({}, {__tostring = function() while true do end end}))
--- error object caught for ever: event time
local e = setmetatable({}, {__tostring = function() while true do end end})
while true do pcall(error, e) end
--- __pairs that loops: event time
for _ in pairs(setmetatable({}, {__pairs = function() return function() return 1 end end})) do end
--- __gc and __mode: event time
while true do setmetatable({}, {__gc = function() while true do end end, __mode = 'kv'}) end
--- sort with a callback that loops: event time
table.sort({3, 2, 1}, function() while true do end end)
--- sort with a callback that fails: event time
while true do pcall(table.sort, {3, 2, 1}, function() error('x') end) end
--- sort without order: event time
local t = {}
for i = 1, 200000 do t[i] = i * 7919 % 200003 end
while true do table.sort(t, function() return true end) end
--- sort of a large table: event time
local t = {}
for i = 1, 1000000 do t[i] = i % 1000 end
while true do table.sort(t) end
--- gsub with a callback that loops: event time
string.gsub('aaa', 'a', function() while true do end end)
--- gsub with callbacks that swallow: event time
string.gsub(('a'):rep(1000), 'a', function() pcall(function() while true do end end) end)
--- gsub with a table that loops: event time
string.gsub('aaa', 'a', setmetatable({}, {__index = function() while true do end end}))
--- gsub that recurses: stack overflow, error
local function f() return (string.gsub('a', 'a', f)) end
f()
--- gmatch for ever: event time
while true do for _ in string.gmatch(('ab'):rep(100000), '.') do end end
--- pattern of lazy runs: ok
string.find(('a'):rep(30000), '.-.-.-.-b$')
--- pattern of captures: ok
string.find(('a'):rep(30000), '(.-)(.-)(.-)(.-)b$')
--- pattern of greedy runs: ok
string.match(('a'):rep(30000), '.*.*.*.*b')
--- pattern of optional items: ok
string.match(('a'):rep(40), ('a?'):rep(40) .. ('a'):rep(41))
--- pattern with back references: event time
string.match(('ab'):rep(100000), '(.-)(.-)%1%2%1c')
--- pattern of frontiers: ok
string.match(('a b '):rep(20000), '%f[a].-%f[b].-%f[a].-c')
--- pattern of balances: event time
string.match(('('):rep(300000), '%b()x')
--- pattern in pcall: event time
while true do pcall(string.find, ('a'):rep(30000), '.-.-.-.-b$') end
--- pattern with a deep stack: error
string.match(('a'):rep(100000), ('(a)'):rep(1000))
--- find of plain text: event time
local s, p = ('a'):rep(4000000), ('a'):rep(2000000) .. 'b'
while true do string.find(s, p, 1, true) end
--- rep bomb: memory
string.rep('x', 1e9)
--- rep bomb of nothing: ok
string.rep('', 1e15)
--- rep with a separator: memory
string.rep('', 1e9, 'x')
--- rep in pcall: memory
while true do pcall(string.rep, 'x', 1e9) end
--- doubling a string: memory
local s = 'x'
while true do s = s .. s end
--- doubling a string in pcall: memory
local s = 'x'
while true do pcall(function() s = s .. s end) end
--- wide concatenation: memory
local s = ('x'):rep(3000000)
for i = 1, 100 do s = s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s end
--- appending: memory
local s = ''
while true do s = s .. 'some more text' end
--- growing a table: memory
local t = {}
while true do t[#t + 1] = {} end
--- growing a table in pcall: memory
local t = {}
while true do pcall(function() while true do t[#t + 1] = {} end end) end
--- growing an array: memory
local t = {}
for i = 1, 1e9 do t[i] = i end
--- growing a hash: memory
local t = {}
for i = 1, 1e9 do t['k' .. i] = i end
--- tables of tables: memory
local t = {}
while true do t = {t, t, t} end
--- a chain of tables: memory
local t
while true do t = {t} end
--- garbage without end: event time
while true do local t = {1, 2, 3, {}} end
--- garbage of strings: event time
local i = 0
while true do i = i + 1 local s = 'x' .. i end
--- concat bomb: memory
local t = {}
for i = 1, 1000 do t[i] = ('x'):rep(100000) end
local s = table.concat(t)
--- concat of one string often: memory
local t, s = {}, ('x'):rep(1000000)
for i = 1, 1000 do t[i] = s end
while true do table.concat(t) end
--- gsub bomb: memory
local s = ('x'):rep(1000)
while true do s = s:gsub('x', 'xxxxxxxxxx') end
--- gsub with a large replacement: memory
(('x'):rep(100000)):gsub('x', ('y'):rep(100000))
--- format bomb: memory
local s = 'x'
while true do s = string.format('%s%s%s%s', s, s, s, s) end
--- upper of a large string: event time
local s = ('x'):rep(4000000)
while true do s:upper() end
--- reverse of a large string: event time
local s = ('x'):rep(4000000)
while true do s:reverse() end
--- byte of a large string: error, event time
string.byte(('x'):rep(4000000), 1, -1)
--- unpack too much: error
unpack({}, 1, 1e8)
--- unpack in pcall: event time
while true do pcall(unpack, {}, 1, 1e8) end
--- select far: event time
while true do select('#', unpack({}, 1, 7000)) end
--- table.move far: event time
table.move({}, 1, 1e15, 2)
--- table.concat far: error, ok
table.concat({}, 'x', 1, 1e15)
--- table.insert at the front: memory
local t = {}
while true do table.insert(t, 1, 1) end
--- table.remove at the front: event time
local t = {}
for i = 1, 500000 do t[i] = i end
while true do table.remove(t, 1) table.insert(t, 1) end
--- math.random for ever: event time
while true do math.random(1, 100) end
--- tonumber for ever: event time
while true do tonumber('0x1p4') tonumber(('9'):rep(100)) end
--- recursion: stack overflow
local function f() return 1 + f() end
f()
--- recursion with many locals: stack overflow
local function f(a, b, c, d, e) local x, y, z = a, b, c return f(x, y, z, d, e) + 1 end
f(1, 2, 3, 4, 5)
--- recursion in pcall: event time
local function f() return 1 + f() end
while true do pcall(f) end
--- fibonacci: event time
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
fib(60)
--- ackermann: event time, stack overflow
local function a(m, n)
  if m == 0 then return n + 1 end
  if n == 0 then return a(m - 1, 1) end
  return a(m - 1, a(m, n - 1))
end
a(4, 3)
--- varargs that grow: error, stack overflow, event time
local function f(...) return f(1, ...) end
f()
--- string building in a coroutine: memory
coroutine.wrap(function() local s = 'x' while true do s = s .. s end end)()
--- table growth in a sort callback: memory
local t = {}
table.sort({3, 2, 1}, function() while true do t[#t + 1] = {} end end)
--- table growth in __index: memory
local t, kept = setmetatable({}, {}), {}
getmetatable(t).__index = function() while true do kept[#kept + 1] = {} end end
return t.x
--- print for ever: event time
while true do print('x') end
--- a log line too long: ok, event time
print(('x'):rep(4000000))
--- reading for ever: event time
while true do local x = event.a end
--- reading a nested field for ever: event time
while true do local x = event.sub.x end
--- writing for ever: event time
while true do event.a = 1 end
--- writing strings for ever: memory
local i = 0
while true do i = i + 1 event.a = 'text ' .. i end
--- writing new keys: memory
for i = 1, 1e9 do event['k' .. i] = i end
--- writing and removing: memory
for i = 1, 1e9 do event['k' .. i % 100] = {i} event['k' .. i % 100] = nil end
--- nesting for ever: memory, error
local t = event
while true do t.x = {} t = t.x end
--- the event in itself: memory, error, output
while true do event.sub = event end
--- cyclic outputs: error
local t = {}
t.t = t
event.x = t
return event
--- pairs of the event for ever: event time, memory
while true do for k, v in pairs(event) do event.a = v end end
--- growth while pairs runs: memory
for k in pairs(event) do for i = 1, 1e9 do event[k .. i] = i end end
--- writing in pcall: memory
local i = 0
while true do pcall(function() while true do i = i + 1 event['k' .. i] = i end end) end
--- an array without end: memory
for i = 1, 1e9 do event.list[i] = i end
--- insert into an array for ever: memory
while true do table.insert(event.list, 1, 1) end
--- sort an array with a callback that loops: event time
table.sort(event.list, function() while true do end end)
--- an array far away: memory, error
event.list[2^31] = 1
--- documents kept: memory, event time
local kept = {}
while true do kept[#kept + 1] = event.sub end
--- many outputs: ok, memory, output, error, event time
local t = {}
for i = 1, 1e6 do t[i] = event end
return t
--- large outputs: memory, output, error
local t, text = {}, ('x'):rep(1e6)
for i = 1, 1000 do t[i] = {text = text} end
return t
--- an output with a loop in its metamethods: event time, ok, error
return setmetatable({}, {__index = function() while true do end end, __pairs = function() while true do end end})
--- encode for ever: event time
while true do json.encode(event) end
--- encode a bomb: memory, error
local t = {('x'):rep(1e6)}
for i = 1, 30 do t = {t, t} end
json.encode(t)
--- encode a cycle: error
local t = {}
t[1] = t
json.encode(t)
--- decode for ever: event time
while true do json.decode('{"a":[1,2,3]}') end
--- decode something deep: error
assert(json.decode(('['):rep(1e6) .. (']'):rep(1e6)))
--- decode something large: memory, ok
local s = '[' .. ('1,'):rep(5e6) .. '1]'
local t = {}
for i = 1, 100 do t[i] = json.decode(s) end
--- decode in pcall: memory
local s, t = '[' .. ('{},'):rep(1e5) .. '1]', {}
while true do pcall(function() t[#t + 1] = json.decode(s) end) end
--- the event from a coroutine: event time
while true do coroutine.wrap(function() event.a = event.a end)() end
--- the event in a coroutine that never ends: event time
coroutine.wrap(function() while true do event.a = event.list[1] end end)()
--- objects adopted level by level: error, event time
local p = event
for i = 1, 80000 do p.x = json.decode('{"x":{}}') p = p.x end
--- arrays adopted level by level: error, event time
event.x = json.decode('[[]]')
local p = event.x
for i = 1, 80000 do p[1] = json.decode('[[]]') p = p[1] end
--- arrays inserted level by level: error, event time
event.x = json.decode('[]')
local p = event.x
for i = 1, 80000 do table.insert(p, json.decode('[]')) p = p[1] end
--- documents and tables in turns: error, event time
local inner = {}
for i = 1, 20 do
  local d = json.decode(('{"x":'):rep(500) .. '{}' .. ('}'):rep(500))
  local p = d
  while p.x do p = p.x end
  p.t = {inner}
  inner = d
end
event.x = inner
json.encode(event)
--- a deep document in tables: error
local t = json.decode(('['):rep(500) .. (']'):rep(500))
for i = 1, 20 do t = {t} end
json.encode(t)
--- denormal in a table literal read as a string: ok
local s
for i = 1, 200 do
  local t = {1, 2, 3, 4, 5, 6, 7, 3.54484805889626e-310}
  t[8] = 'text'
  t[1], t[2], t[3], t[4], t[5], t[6], t[7] = nil, nil, nil, nil, nil, nil, nil
  t.a = i
  s = t[8]
  if s ~= 'text' then error(s) end
end
--- for over a method of nil: error
local a for _ in (nil):foo() do end
--- decode of many nodes: memory, ok
local s, kept = '[' .. ('0,'):rep(2e6) .. '0]', {}
for i = 1, 100 do kept[i] = json.decode(s) end
--- decode of many nodes, not kept: event time
local s = '[' .. ('0,'):rep(1e5) .. '0]'
while true do json.decode(s) end
--- decode of too many fields: error, event time
local t = {}
for i = 1, 40000 do t[i] = '"k' .. i .. '":0' end
assert(json.decode('{' .. table.concat(t, ',') .. '}'))
--- keys of one hash: event time
local t = {}
for i = 1, 30000 do t[i] = ('"same%08dsame":0'):format(i) end
local d = json.decode('{' .. table.concat(t, ',') .. '}')
while true do for k in pairs(d) do d[k] = 1 end end
--- escaped keys of one hash: event time, memory
local t = {}
for i = 1, 5000 do t[i] = ('"\\u0073ame%08dsame":0'):format(i) end
local d = json.decode('{' .. table.concat(t, ',') .. '}')
while true do for k in pairs(d) do d[k] = 1 end end
--- many fields in the event: memory, event time, ok
for i = 1, 1e6 do event['same' .. i .. 'same'] = i end
--- trimming a long run of spaces: ok
local s = " a" .. (" "):rep(20000) .. "b "
for _ = 1, 2 do
  assert(#s:match("^%s*(.-)%s*$") == 20002)
  assert(#s:gsub("^%s*(.-)%s*$", "%1") == 20002)
  assert(#s:gsub("^%s+", ""):gsub("%s+$", "") == 20002)
end
--- pairs of 30,000 fields: ok
local t, n = {}, 0
for i = 1, 30000 do t[i] = '"field' .. i .. '":1' end
local document = json.decode("{" .. table.concat(t, ",") .. "}")
for k, v in pairs(document) do n = n + v document[k] = nil end
assert(n == 30000)
--- require of missing names: event time
local i = 0
while true do i = i + 1 pcall(require, "handlers.kind" .. i) end
--- require of long names: event time
local name = ("x"):rep(5e6)
while true do pcall(require, name) end
--- require of names that are no names: event time
local i = 0
while true do i = i + 1 pcall(require, ("../"):rep(i % 100) .. string.char(i % 256)) end
--- require of other values: event time
while true do for _, v in ipairs {1, true, {}, print, event} do pcall(require, v) end pcall(require) end
--- looking names up in a loop: event time
local net = require "net"
while true do net.addr("example.com") end
--- looking a name up for ever: event time
local net = require "net"
while true do pcall(net.addr, "silent.example.com") end
