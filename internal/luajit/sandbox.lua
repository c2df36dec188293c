-- Creates the environment of a script from an allow-list of functions, which the script cannot
-- change. Returns the table of globals, the environment, and the function that seals it.
local strings, threads, log = ...

local error, getmetatable, next, rawlen, select, setmetatable, tonumber, tostring, type, unpack =
  error, getmetatable, next, rawlen, select, setmetatable, tonumber, tostring, type, unpack

-- library returns a read-only view, so that a script cannot change functions that string
-- methods or the host's own code use.
local function library(real)
  return setmetatable({}, {
    __index = real,
    __newindex = function(_, name)
      error("attempt to change the library at '" .. tostring(name) .. "'", 2)
    end,
    __pairs = function() return function(_, k) return next(real, k) end end,
    __metatable = false,
  })
end
perigee_library = library

-- pcall, xpcall and the coroutine functions use resume. So scripts can yield across them, they are
-- never compiled into a trace, and they cannot catch the error of a limit: step raises it again.

local step, create, running, yield =
  threads.step, coroutine.create, coroutine.running, coroutine.yield
local YIELDED, FAILED = 1, 2
local DONE = {}

-- A coroutine on the free list is suspended in its body's yield. owner maps it to the coroutine
-- that the script sees as running.
local free, frees = {}, 0
local owner = setmetatable({}, {__mode = "k"})

local function body(f, ...)
  return body(yield(DONE, f(...)))
end

local function acquire()
  local co
  if frees > 0 then
    co = free[frees]
    free[frees], frees = nil, frees - 1
  else
    co = create(body)
  end
  owner[co] = running()
  return co
end

local after

local function yielded(co, first, ...)
  if first ~= DONE then return after(co, step(co, yield(first, ...))) end
  if frees < 16 then
    frees = frees + 1
    free[frees] = co
  end
  return true, ...
end

after = function(co, state, ...)
  if state == YIELDED then return yielded(co, ...) end
  return false, ...
end

local function pcall(f, ...)
  local co = acquire()
  return after(co, step(co, f, ...))
end

local function handled(handler, ok, ...)
  if ok then return true, ... end
  return false, select(2, pcall(handler, ...))
end

local function xpcall(f, handler, ...)
  return handled(handler, pcall(f, ...))
end

-- A script that waits for a Go function yields CALL, through all of its coroutines.
local CALL = {}
function perigee_wait() yield(CALL) end

local function resumed(co, state, ...)
  if state == YIELDED and ... == CALL then
    yield(CALL)
    return resumed(co, step(co))
  end
  return state ~= FAILED, ...
end


local function unwrapped(co, state, ...)
  if state == YIELDED and ... == CALL then
    yield(CALL)
    return unwrapped(co, step(co))
  end
  if state == FAILED then error((...), 0) end
  return ...
end

local function wrap(f)
  local co = create(f)
  return function(...) return unwrapped(co, step(co, ...)) end
end

-- mains holds the coroutines in which the host runs scripts.
local mains = setmetatable({}, {__mode = "k"})

-- resume rejects the host's own coroutines, which a script can get from coroutine.running.
local function resume(co, ...)
  if mains[co] then return false, "cannot resume a coroutine that is not suspended" end
  return resumed(co, step(co, ...))
end

local function current()
  local co, main = running()
  while owner[co] do co = owner[co] end
  return co, main or mains[co] == true
end

local function inside()
  local _, main = current()
  return not main
end

local function give(...)
  if not inside() then error("attempt to yield from outside a coroutine", 2) end
  return yield(...)
end

local isyieldable = coroutine.isyieldable
local function can_yield() return isyieldable() and inside() end

-- sort is a merge sort in Lua: hooks can stop it, and no comparison function can make it quadratic.

local function insertion(t, from, to, less)
  for i = from + 1, to do
    local v, j = t[i], i - 1
    while j >= from and less(v, t[j]) do
      t[j + 1] = t[j]
      j = j - 1
    end
    t[j + 1] = v
  end
end

local function merge(t, spare, from, mid, to, less)
  for i = from, mid do spare[i] = t[i] end
  local i, j, at = from, mid + 1, from
  while i <= mid and j <= to do
    if less(t[j], spare[i]) then
      t[at], j = t[j], j + 1
    else
      t[at], i = spare[i], i + 1
    end
    at = at + 1
  end
  for k = i, mid do
    t[at], at = spare[k], at + 1
  end
end

local function lower(a, b) return a < b end

local function sort(t, less)
  if type(t) ~= "table" then error("bad argument #1 to 'sort' (table expected)", 2) end
  if less == nil then less = lower end
  local n, width, spare = #t, 12, {}
  for from = 1, n, width do
    insertion(t, from, from + width - 1 < n and from + width - 1 or n, less)
  end
  while width < n do
    for from = 1, n - width, 2 * width do
      local to = from + 2 * width - 1
      merge(t, spare, from, from + width - 1, to < n and to or n, less)
    end
    width = 2 * width
  end
end

-- format replaces the library's own, which calls __tostring from C to any depth.

-- insert replaces the library's own, which moves any number of elements in C.

local raw_insert = table.insert

local function insert(t, ...)
  if select("#", ...) == 2 and type(t) == "table" then
    local at = tonumber((...))
    if at and not (at >= 1 and at <= rawlen(t) + 1) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
  end
  return raw_insert(t, ...)
end

local raw_format = string.format

local function plain(v)
  local kind = type(v)
  return kind ~= "table" and kind ~= "userdata"
end

local function format_objects(template, ...)
  local args, n = {...}, select("#", ...)
  for i = 1, n do
    if not plain(args[i]) then args[i] = tostring(args[i]) end
  end
  return raw_format(template, unpack(args, 1, n))
end

local function format(template, ...)
  local a, b, c, d = ...
  if select("#", ...) <= 4 and plain(a) and plain(b) and plain(c) and plain(d) then
    return raw_format(template, ...)
  end
  return format_objects(template, ...)
end

local function logger(level)
  return function(...)
    local line = ""
    for i = 1, select("#", ...) do
      line = line .. (i > 1 and "\t" or "") .. tostring((select(i, ...)))
    end
    log(level, line)
  end
end

-- The host's log levels.
local print = logger(0)
perigee_log = {debug = logger(-4), info = print, warn = logger(4), warning = logger(4), error = logger(8)}

local function only(from, names)
  local to = {}
  for name in names:gmatch("%S+") do to[name] = from[name] end
  return to
end

local text = only(string, "byte char len lower reverse sub upper")
for name, f in next, strings do text[name] = f end
text.format, text.find_pattern = format, nil

-- gsub with a replacement function is implemented in Lua, so that the function can yield.

local find, gsub, concat = strings.find_pattern, strings.gsub, table.concat

-- replacement returns the replacement of a match; the arguments after `to` are its captures.
local function replacement(s, f, from, to, ...)
  local whole = s:sub(from, to)
  local new
  if select("#", ...) > 0 then new = f(...) else new = f(whole) end
  if not new then return whole end
  local kind = type(new)
  if kind ~= "string" and kind ~= "number" then error("invalid replacement value (a " .. kind .. ")", 4) end
  return new
end

local function replace(s, pattern, f, limit)
  local out, n, count, at = {}, 0, 0, 1
  local anchored = pattern:byte() == 94 -- ^
  local function found(from, to, ...)
    if not from then return end
    out[n + 1], out[n + 2] = s:sub(at, from - 1), replacement(s, f, from, to, ...)
    n, count, at = n + 2, count + 1, to + 1
    if to < from then -- an empty match: keep the next byte
      n = n + 1
      out[n], at = s:sub(at, at), at + 1
    end
    return not anchored and at <= #s + 1
  end
  while count < limit and found(find(s, pattern, at)) do end
  out[n + 1] = s:sub(at)
  return concat(out), count
end

function text.gsub(s, pattern, with, limit)
  if type(with) ~= "function" then return gsub(s, pattern, with, limit) end
  gsub(s, pattern, "", 0) -- raises the error for invalid arguments
  if limit == nil then return replace(tostring(s), tostring(pattern), with, 1 / 0) end
  gsub("", "", "", limit)
  return replace(tostring(s), tostring(pattern), with, tonumber(limit))
end

local meta = getmetatable("")
meta.__index, meta.__metatable = text, false

local tables = only(table, "remove concat pack unpack move maxn")
tables.insert, tables.sort = insert, sort

local globals = only(_G, [[
  assert error getmetatable ipairs next pairs rawequal rawlen select setmetatable
  tonumber tostring type unpack _VERSION]])
globals.pcall, globals.xpcall, globals.print = pcall, xpcall, print
globals.string = library(text)
globals.table = library(tables)
globals.math = library(only(math, [[
  abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log
  log10 max min modf pi pow rad random randomseed sin sinh sqrt tan tanh]]))
globals.bit = library(only(bit, [[
  arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex]]))
globals.coroutine = library({
  create = create, isyieldable = can_yield, resume = resume,
  running = current, status = coroutine.status, wrap = wrap, yield = give,
})

local guard = {__index = globals, __metatable = false}
guard.__newindex = function(_, name, value) globals[name] = value end
local env = setmetatable({}, guard)
globals._G = env

-- seal runs after the script is loaded. From then on, assignments to globals raise an error, so
-- that no value outlives its event by accident.
local function seal()
  guard.__newindex = function(_, name)
    error("attempt to assign to the global '" .. tostring(name) ..
      "' while events run; write 'local " .. tostring(name) .. "' instead", 2)
  end
end

return globals, env, seal, mains
