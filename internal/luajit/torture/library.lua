--- table.insert far below: error
table.insert({}, -2147483647, 1)
--- table.insert far below a table with elements: error
table.insert({1, 2, 3}, -2147483647, 1)
--- table.insert far below, as text: error
table.insert({}, '-2147483647', 1)
--- table.insert at 2^31: error
table.insert({}, 2^31, 1)
--- table.insert at 2^40: error
table.insert({1, 2}, 2^40, 1)
--- table.insert at -2^63: error
table.insert({1, 2}, -2^63, 1)
--- table.insert at infinity: error
table.insert({1, 2}, math.huge, 1)
--- table.insert at minus infinity: error
table.insert({1, 2}, -math.huge, 1)
--- table.insert at nan: error
table.insert({1, 2}, 0 / 0, 1)
--- table.insert at zero: error
table.insert({1, 2}, 0, 1)
--- table.insert far above: error
table.insert({1, 2}, 2147483647, 1)
--- table.insert far below in pcall: event time
while true do pcall(table.insert, {}, -2147483647, 1) end
--- table.insert far below in a compiled loop: error
local t = {}
for i = 1, 1000 do table.insert(t, i < 900 and 1 or -2147483647, i) end
--- table.insert far below an array of the event: error
table.insert(event.list, -2147483647, 1)
--- table.insert far above an array of the event: error
table.insert(event.list, 2147483647, 1)
--- table.insert at nan of an array of the event: error
table.insert(event.list, 0 / 0, 1)
--- table.insert at a fraction of an array of the event: error
table.insert(event.list, 1.5, 1)
--- table.insert without a position: ok
table.insert({}, -2147483647)
--- table.insert of too many: error
table.insert({}, -2147483647, 1, 2)
--- table.insert into a library: error
table.insert(string, -2147483647, 1)
--- table.insert with a length that lies: error
table.insert(setmetatable({}, {__len = function() return 2^31 end}), -2147483647, 1)
--- table.insert with a length that loops: ok, event time
table.insert(setmetatable({}, {__len = function() while true do end end}), 1, 1)
--- table.insert with a key that loops: ok
table.insert(setmetatable({}, {__newindex = function() while true do end end}), 1)
--- table.insert at the front of a large table: event time
local t = {}
for i = 1, 300000 do t[i] = i end
while true do table.insert(t, 1, 1) t[#t] = nil end
--- table.insert at the front of a large table in pcall: event time, memory
local t = {}
for i = 1, 100000 do t[i] = i end
while true do pcall(table.insert, t, 1, 1) end
--- table.remove far below: ok
table.remove({}, -2147483647)
--- table.remove far above: ok
table.remove({1, 2, 3}, 2147483647)
--- table.remove at 2^63: ok
table.remove({1, 2, 3}, 2^63)
--- table.remove at nan: ok, error
table.remove({1, 2, 3}, 0 / 0)
--- table.remove of a length that lies: event time, ok
table.remove(setmetatable({}, {__len = function() return 2^40 end}), 1)
--- table.remove of an array of the event, far below: ok
table.remove(event.list, -2147483647)
--- table.remove of an array of the event, for ever: event time
while true do table.remove(event.list, 1) end
--- table.concat from far below: error
table.concat({1}, ',', -2147483647)
--- table.concat to far above: error
table.concat({1}, ',', 1, 2147483647)
--- table.concat over the end of integers: ok
table.concat({1}, ',', 2147483647, -2147483648)
--- table.concat over 2^40: error, ok
table.concat({1}, ',', -2^40, 2^40)
--- table.concat to nan: error, ok
table.concat({1}, ',', 1, 0 / 0)
--- table.concat of a length that lies: error
table.concat(setmetatable({1}, {__len = function() return 2^31 - 1 end}), ',')
--- table.concat with a separator bomb: memory
local t = {}
for i = 1, 100000 do t[i] = '' end
table.concat(t, ('x'):rep(100000))
--- table.concat with a separator bomb in pcall: memory
local t = {}
for i = 1, 100000 do t[i] = '' end
while true do pcall(table.concat, t, ('x'):rep(100000)) end
--- table.concat of an array of the event, far: error
table.concat(event.list, ',', 1, 2147483647)
--- table.concat of a large table for ever: event time
local t = {}
for i = 1, 500000 do t[i] = 'x' end
while true do table.concat(t) end
--- table.move far below: event time
table.move({}, -2147483648, 2147483647, 1)
--- table.move to far above: event time, memory
table.move({1, 2, 3}, 1, 3, 2^53)
while true do table.move({1, 2, 3}, 1, 3, 2^40) end
--- table.move onto itself: event time
local t = {}
for i = 1, 1000 do t[i] = i end
table.move(t, 1, 1e15, 2, t)
--- table.move of infinity: event time, ok, error
table.move({}, -math.huge, math.huge, 1)
--- table.move of nan: ok, error
table.move({}, 0 / 0, 0 / 0, 0 / 0)
--- table.move with keys that loop: ok
table.move(setmetatable({}, {__index = function() while true do end end}), 1, 2, 1)
--- table.move into the event: error, event time, memory
table.move({1, 2, 3}, 1, 3, 2147483640, event.list)
--- table.move out of the event: event time, ok, error
table.move(event.list, 1, 2147483647, 1, {})
--- table.maxn of a large table for ever: event time
local t = {}
for i = 1, 200000 do t['k' .. i] = i end
while true do table.maxn(t) end
--- table.pack of too many: error
table.pack(unpack({}, 1, 1e7))
--- table.pack for ever: event time
while true do table.pack(1, 2, 3, unpack({}, 1, 200)) end
--- table.unpack from far below: error
table.unpack({}, -2147483648, 2147483647)
--- table.unpack over the end of integers: ok
table.unpack({}, 2147483647, -2147483648 + 2^32)
--- table.unpack over 2^40: error, ok
table.unpack({}, -2^40, 2^40)
--- table.unpack to nan: error, ok
table.unpack({}, 1, 0 / 0)
--- table.unpack of a length that lies: error
table.unpack(setmetatable({}, {__len = function() return 2^31 - 1 end}))
--- table.unpack of what the stack holds just so: event time, error
while true do pcall(function() return #{unpack({}, 1, 7990)} end) end
--- table.unpack in deep recursion: stack overflow, error
local function f() return f(unpack({}, 1, 200)) , 1 end
f()
--- table.unpack of an array of the event, far: error
unpack(event.list, 1, 2147483647)
--- table.sort of a length that lies: event time, error, memory, ok
table.sort(setmetatable({}, {__len = function() return 2^31 end}))
--- table.sort of unlike types: error
table.sort({1, 'a', {}, true})
--- table.sort whose order yields: error, event time, ok
table.sort({3, 2, 1}, coroutine.yield)
--- table.sort that changes its table: event time, ok, error, memory
local t = {}
for i = 1, 1000 do t[i] = -i end
table.sort(t, function(a, b) t[#t + 1] = 1 t[1] = nil return (a or 0) < (b or 0) end)
--- table.sort of an array that its order empties: error, ok
table.sort(event.list, function(a, b) event.list = nil return a < b end)
--- table.sort with nan: ok
local t = {}
for i = 1, 1000 do t[i] = i % 3 == 0 and 0 / 0 or i end
table.sort(t)
--- table.sort in table.sort: event time
local function order(a, b) table.sort({3, 2, 1}, order) return a < b end
while true do pcall(table.sort, {3, 2, 1}, function(a, b) table.sort({3, 2, 1}, function() while true do end end) return true end) end
--- table.new and table.clear: ok
assert(table.new == nil and table.clear == nil)
--- rep of nan: ok
string.rep('x', 0 / 0)
--- rep of infinity: memory
string.rep('x', math.huge)
--- rep of minus infinity: ok
string.rep('x', -math.huge)
--- rep of 2^31: memory
string.rep('x', 2^31)
--- rep of 2^63: memory
string.rep('x', 2^63)
--- rep whose length overflows: memory
string.rep(('x'):rep(65536), 2^48)
--- rep whose separator overflows: memory
string.rep('', 2^48, ('x'):rep(65536))
--- rep as text: memory
string.rep('x', '1e9')
--- rep just below the limit, for ever: memory, event time
local t = {}
while true do t[#t + 1] = ('x'):rep(30e6) end
--- rep below the limit, as garbage: event time, memory
while true do ('x'):rep(10e6) end
--- sub far below: event time
while true do ('abc'):sub(-2147483648, 2147483647) end
--- sub over 2^40: ok
local a, b, c = ('abc'):sub(-2^40, 2^40), ('abc'):sub(2^63, -2^63), ('abc'):sub(0 / 0, 0 / 0)
--- byte from far below: ok
('abc'):byte(-2147483648, 2147483647)
--- byte over 2^40: ok
local a, b = ('abc'):byte(-2^40, 2^40), ('abc'):byte(0 / 0, 0 / 0)
--- byte of what the stack holds just so: event time
local s = ('x'):rep(7900)
while true do pcall(string.byte, s, 1, -1) end
--- byte in deep recursion: stack overflow, error
local s = ('x'):rep(250)
local function f() return f(s:byte(1, -1)), 1 end
f()
--- char of too many: error
string.char(unpack({}, 1, 1e6))
--- char out of range: error
string.char(256)
--- char of 2^40: error
string.char(2^40)
--- char of nan: error, ok
string.char(0 / 0)
--- char for ever: event time
while true do string.char(1, 2, 3, 4, 5, 6, 7, 8) end
--- find from far below: ok
local a, b, c = ('abc'):find('b', -2147483648), ('abc'):find('b', -2^40), ('abc'):find('b', -2^63)
assert(a == 2 and b == 2 and c == 2)
--- find from far above: ok
local a, b, c = ('abc'):find('b', 2147483647), ('abc'):find('b', 2^40), ('abc'):find('b', math.huge)
assert(a == nil and b == nil and c == nil)
--- find from nan: ok
local a, b, c = ('abc'):find('b', 0 / 0), ('abc'):find('b', 0 / 0, true), ('abc'):match('b', 0 / 0)
--- match from far, compiled: ok
for i = 1, 300 do
  local at = i < 200 and 1 or i < 250 and 2^53 or -2^53
  local a, b = ('abc'):match('(b)', at), ('abc'):find('b', at)
end
--- gsub with a count of 2^63: ok
local a, b, c = ('aaa'):gsub('a', 'b', 2^63), ('aaa'):gsub('a', 'b', -2^63), ('aaa'):gsub('a', 'b', 0 / 0)
--- gsub with empty matches: memory
while true do event.s = (event.s or 'x'):gsub('', 'xx') end
--- gsub with a template of captures: memory
(('x'):rep(60000)):gsub('.*', ('%0'):rep(60000))
--- gsub with a bad template: ok, error
('x'):gsub('x', '%9') ('x'):gsub('x', '%')
--- gsub with a pattern of 2^16 captures: error
('x'):gsub(('()'):rep(65536), '')
--- gsub whose function replaces the metatable: error
('x'):gsub('x', function() getmetatable('').__index = nil end)
--- format with a width of 2^31: error
string.format('%2147483647d', 1)
--- format with a width of 100: error
string.format('%100d', 1)
--- format with a precision of 100: error
string.format('%.100f', 1)
--- format of a huge number: ok
string.format('%99.99f', 1e308)
--- format of huge numbers for ever: event time
while true do string.format('%99.99f %99.99f', 1e308, -1e308) end
--- format of too few: error
string.format(('%s'):rep(1000))
--- format of 2^63: ok
string.format('%d %x %c', 2^63, 2^63, 300)
--- format of nan: ok
string.format('%d %x', 0 / 0, math.huge)
--- format of a star: error
string.format('%*d', 1, 2)
--- format of n: error
string.format('%n', 1)
--- format of many: error
string.format(('%99s'):rep(7000):rep(200), unpack({}, 1, 7000))
--- format of q: memory
local s = ('\0'):rep(1000)
while true do s = string.format('%q', s) end
--- format of p: ok, error
string.format('%p', {})
--- format with a template of megabytes: error, memory, event time
string.format(('%%'):rep(10e6) .. '%d')
--- len of many: event time
while true do local n = #('x'):rep(1000) end
--- lower of a large string: event time
local s = ('X'):rep(4000000)
while true do s:lower() end
--- tonumber of a long text: ok
tonumber(('9'):rep(1e6)) tonumber('0x' .. ('f'):rep(1e6)) tonumber('0.' .. ('0'):rep(1e6) .. '1')
--- tonumber of a long text for ever: event time
local s = ('9'):rep(1e6)
while true do tonumber(s) end
--- tonumber of a huge exponent: ok
tonumber('1e999999999') tonumber('1e-999999999') tonumber('0x1p999999999')
--- tonumber of a huge base: error
tonumber('1', 2147483647)
--- tonumber of a base below zero: error
tonumber('1', -2147483648)
--- tonumber of a base of nan: error
tonumber('1', 0 / 0)
--- tonumber of long text in a base: ok
tonumber(('z'):rep(1e6), 36)
--- select far below: error
select(-2147483648, 1)
--- select of 2^40: error, ok
select(-2^40, 1)
--- select of nan: error, ok
select(0 / 0, 1)
--- select of zero: error
select(0, 1)
--- select far above: ok
select(2147483647, 1)
--- select of many: event time
local function f(...) while true do local x = select(-1, ...) end end
f(unpack({}, 1, 7000))
--- select of each of many: event time
local function f(...) for i = 1, 1e9 do local x = select(i % 200 + 1, ...) end end
f(unpack({}, 1, 200))
--- error at a far level: error
error('x', 2147483647)
--- error at a level below zero: error
error('x', -2147483648)
--- error at a level of nan: error
error('x', 0 / 0)
--- error at far levels for ever: event time
while true do pcall(error, 'x', 2147483647) end
--- bit shifts of far: ok
bit.lshift(1, 2147483647) bit.rshift(1, -2147483648) bit.arshift(-1, 2^40) bit.rol(1, 0 / 0) bit.ror(1, math.huge)
--- bit.tohex of far: ok
bit.tohex(1, 2147483647) bit.tohex(1, -2147483648) bit.tohex(2^40, 2^40) bit.tohex(1, 0 / 0)
--- bit operations of many: event time
while true do bit.bxor(unpack({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})) end
--- bit operations of no number: error
bit.band({}, 1)
--- << of far: ok
local x = (1 << 2147483647) + (1 >> -1) + (1 ~>> 64)
--- math.random of far: ok, error
math.random(-2^63, 2^63) math.random(2^53) math.random(-2147483648, 2147483647)
--- math.random of nan: ok, error
math.random(0 / 0, 0 / 0)
--- math.random of an empty range: ok, error
math.random(2, 1)
--- math.randomseed of anything: error, ok
math.randomseed(0 / 0) math.randomseed(math.huge) math.randomseed({})
--- math.ldexp of far: ok
math.ldexp(1, 2147483647) math.ldexp(1, -2147483648) math.ldexp(1, 0 / 0)
--- math.fmod of nothing: ok, error
math.fmod(1, 0) math.fmod(math.huge, 1)
--- math.max of many: event time
while true do math.max(1, 2, 3, 4, 5, unpack({6, 7, 8})) end
--- math.min of no number: error
math.min({}, 1)
--- rawlen of far: ok
local t = {}
t[2^30], t[2^31], t[2^53] = 1, 2, 3
for i = 0, 30 do t[2^i] = i end
local n = rawlen(t) + #t
--- length of a table with holes, for ever: event time
local t = {}
for i = 0, 30 do t[2^i] = i end
while true do local n = #t end
--- next of a key that is gone: error
next({}, 'gone')
--- next of nan: error
next({1, 2}, 0 / 0)
--- next of an emptied table, for ever: event time
local t = {}
for i = 1, 200000 do t['k' .. i] = true end
for k in pairs(t) do t[k] = nil end
while true do next(t) end
--- rawequal for ever: event time
while true do rawequal({}, {}) end
--- tostring of deep: ok
tostring(tostring) tostring({}) tostring(coroutine.create(function() end))
--- setmetatable of a library: error
setmetatable(string, {})
--- getmetatable of text: ok
assert(getmetatable('') == false)
--- coroutine.wrap of no function: error
coroutine.wrap(1)
--- coroutine.resume of no coroutine: error
coroutine.resume(1)
--- coroutine.resume with many values: error, ok, event time
local co = coroutine.wrap(function(...) while true do coroutine.yield(...) end end)
for i = 1, 1e9 do co(unpack({}, 1, 7900)) end
--- coroutine.yield with many values: error, ok
coroutine.wrap(function() coroutine.yield(unpack({}, 1, 7990)) end)()
--- coroutine.status of anything: error
coroutine.status({})
--- event.list far below: ok
local x = event.list[-2147483648] == event.list[2^63] and event.list[0 / 0]
--- event.list at a fraction: error
event.list[1.5] = 1
--- event.list at nan: error
event.list[0 / 0] = 1
--- event.list below: error
event.list[-1] = 1
--- a list with one far element: error
json.encode({[2^30] = 1})
--- a list with one far element below 2^53: error
json.encode({[2^53] = 1})
--- a list with elements at powers of two: error
local t = {}
for i = 0, 30 do t[2^i] = i end
json.encode(t)
--- a list with a far element in outputs: error
event.x = {[2^31 - 1] = 1}
return event
--- a list with a fraction: error
json.encode({[1.5] = 1})
--- one far element among outputs: error, ok
return {[1] = event, [2^30] = event}
--- json.encode of a length that lies: ok
json.encode(setmetatable({}, {__len = function() return 2^31 end}))
--- json.encode of megabytes of escapes: memory, ok
local s = ('\1'):rep(5e6)
local t = {}
for i = 1, 100 do t[i] = json.encode(s) end
--- json.decode of a far exponent: ok, error
json.decode('1e999999999') json.decode('[1e-999999999]')
--- json.decode of megabytes of digits: ok, event time
local s = ('9'):rep(5e6)
for i = 1, 3 do json.decode(s) end
--- json.decode of text that ends: event time
local s = '["' .. ('x'):rep(1e6)
while true do pcall(json.decode, s) end
--- json.decode of many keys: memory, ok, event time
local t = {}
for i = 1, 100000 do t[i] = '"k' .. i .. '":1' end
local s = '{' .. table.concat(t, ',') .. '}'
for i = 1, 100 do t[i] = json.decode(s) end
--- json.decode of one key, repeated: ok, event time
json.decode('{' .. ('"a":1,'):rep(100000) .. '"a":2}')
--- require of a long name: error
require(('x'):rep(1e6))
--- require of names with zeros: error
require('a\0b')
--- require for ever: event time
while true do pcall(require, 'nothing') end
--- stats of no number: error
require('stats').count('x', {})
--- stats with labels for ever: event time
while true do require('stats').count('x', 1, {a = 'b'}) end
--- log for ever: event time
while true do require('log').warn('x') end
--- table.move into a library: error
table.move({1}, 1, 1, 1, string)
--- table.move into the globals: error
table.move({1}, 1, 1, 1, _G)
--- table.insert into the globals: error
table.insert(_G, 1)
--- table.move into an array of the event: ok
table.move({7, 8}, 1, 2, 1, event.list)
assert(event.list[1] == 7 and event.list[2] == 8 and event.list[3] == 2)
--- table.move within an array of the event: ok
table.move(event.list, 1, 2, 2)
assert(event.list[1] == 3 and event.list[2] == 3 and event.list[3] == 1)
--- table.move out of an array of the event: ok
local t = table.move(event.list, 2, 3, 1, {})
assert(t[1] == 1 and t[2] == 2)
