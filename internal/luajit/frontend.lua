-- Gives a script's globals what documents need, and returns the maker of the
-- drivers: a function that passes one event through main, for batches of one, so
-- that it is compiled as a function; and a loop, compiled as such. A failing event
-- leaves them and is dealt with in C; hence no pcall here.
local globals, part, number, json, run, call, of_values, proxy = ...

local error, getmetatable, next, select, setmetatable, tonumber, type, unpack =
  error, getmetatable, next, select, setmetatable, tonumber, type, unpack
local is_part = part.is

-- is_document tells a document from a plain table. What stands for one has a
-- metatable that is hidden.
local function is_document(v)
  local kind = type(v)
  return kind == "userdata" and is_part(v)
    or kind == "table" and getmetatable(v) == false and is_part(v)
end

function globals.type(...)
  local kind = type(...)
  if kind == "userdata" and is_part((...)) then return "table" end
  return kind
end

function globals.next(t, key)
  if is_document(t) then return part.next(t, key) end
  return next(t, key)
end

function globals.tonumber(v, ...)
  if type(v) == "userdata" then return number(v) end
  return tonumber(v, ...)
end

-- list copies the elements of an array to a table.
local function list(array)
  local t, n = {}, #array
  for i = 1, n do t[i] = array[i] end
  return t, n
end

local tables = debug.getmetatable(globals.table).__index
local insert, remove, concat, sort = tables.insert, tables.remove, tables.concat, tables.sort

function tables.insert(t, ...)
  if is_document(t) then return part.insert(t, ...) end
  if getmetatable(t) == false then error("attempt to change a library", 2) end
  return insert(t, ...)
end

function tables.remove(t, ...)
  if is_document(t) then return part.remove(t, ...) end
  return remove(t, ...)
end

function tables.concat(t, separator, from, to)
  if is_document(t) then
    local n
    t, n = list(t)
    to = to or n
  end
  return concat(t, separator, from or 1, to or #t)
end

function tables.sort(t, less)
  if not is_document(t) then return sort(t, less) end
  local sorted, n = list(t)
  sort(sorted, less)
  for i = 1, n do t[i] = sorted[i] end
end

local function unpack_any(t, from, to)
  if is_document(t) then
    local n
    t, n = list(t)
    to = to or n
  end
  return unpack(t, from or 1, to or #t)
end
globals.unpack, tables.unpack = unpack_any, unpack_any

-- Functions of Go: the script leaves a request and yields. Function 0 reads a file.
-- Where single functions are called, one that does not wait is called from C, and
-- the last one of a call after that. A trace that has little but the way to a
-- function of C in it is slower than none.
local ask, answer, wait = call.ask, call.answer, perigee_wait
if call.direct and proxy then require "jit.opt".start("minstitch=32") end

local function of_go(function_number)
  return function(...)
    if ask(function_number, ...) then return end
    wait()
    return answer()
  end
end

local libraries = {json = json, log = perigee_log, stats = {}}
do
  local count = 0
  for module, name, pure in call.names:gmatch("([^\n]+)%.([^\n\t]+)(\t?)") do
    count = count + 1
    libraries[module] = libraries[module] or {}
    libraries[module][name] = (pure ~= "" and call.direct or of_go)(count)
  end
end
if libraries.time then libraries.time.now, libraries.time.unix = call.now, call.unix end

local measure = call.measure
for kind, name in ipairs({"count", "gauge", "histogram"}) do
  libraries.stats[name] = function(what, amount, labels)
    return measure(kind, what, amount == nil and kind == 1 and 1 or amount, labels)
  end
end
libraries.stats.counter = libraries.stats.count

local re = libraries.re or {}
function re.gmatch(text, pattern)
  local all, i = re.all(text, pattern), 0
  return function()
    i = i + 1
    local groups = all[i]
    if type(groups) ~= "table" then return groups end
    return unpack(groups, 1, #groups)
  end
end

local modules = {}
for name, library in next, libraries do modules[name] = perigee_library(library) end
globals.json = modules.json
globals.os, modules.os = modules.os, nil -- a global of Lua, not for require

local read_file, compile, pcall, LOADING = of_go(0), call.compile, globals.pcall, {}

local function load_file(name)
  local text, path = read_file(name)
  local file = compile(text, path)
  modules[name] = LOADING
  local loaded, result = pcall(file, name)
  modules[name] = nil
  if not loaded then error(result, 0) end
  if result == nil then result = true end
  modules[name] = result
  return result
end

function globals.require(name)
  if type(name) ~= "string" then error("bad argument #1 to 'require' (string expected)", 2) end
  local module = modules[name]
  if module == nil then return (load_file(name)) end
  if module == LOADING then error("require '" .. name .. "': the file requires itself", 2) end
  return module
end

if not proxy then
  local step, finish = run.step, of_values and run.value or run.finish
  return function(main)
    local function one()
      local event = step()
      if event == nil then return false end
      finish(main(event))
      return true
    end
    return one, function() while one() do end end
  end
end

-- The compiled front end. The event is an empty table, fresh each time, whose
-- metamethods go to the document through FFI, and so is what is nested in it; a
-- script never gets hold of a cdata. What is rare, and all that may raise, is left to the other front end.

local ffi = require "ffi"
ffi.cdef[[
struct calls {
  int (*next)(void *);
  int (*sent)(void *);
  void (*dropped)(void *);
  int (*read)(void *, uint32_t, const char *, size_t);
  int (*element)(void *, uint32_t, double);
  uint32_t (*length)(void *, uint32_t);
  int (*removed)(void *, uint32_t, const char *, size_t);
  int (*set_number)(void *, uint32_t, const char *, size_t, double);
  int (*set_string)(void *, uint32_t, const char *, size_t, const char *, size_t);
  int (*set_literal)(void *, uint32_t, const char *, size_t, int);
  int (*sent_string)(void *, const char *, size_t);
  int (*sent_number)(void *, double);
  int (*find)(void *, const char *, size_t, const char *, size_t, double);
};
struct range { int32_t from, to; };
struct match { struct range whole, capture[4]; };
struct found { const char *str; uint32_t str_len; uint32_t got; double num; };
]]
local calls = ffi.cast("struct calls *", proxy.calls)
local next_event, sent, dropped = calls.next, calls.sent, calls.dropped
local read, element, length, removed = calls.read, calls.element, calls.length, calls.removed
local set_number, set_string, set_literal = calls.set_number, calls.set_string, calls.set_literal
local front, document = ffi.cast("void *", proxy.front), ffi.cast("void *", proxy.event)
local found, now = ffi.cast("struct found *", proxy.event), ffi.cast("uint32_t *", proxy.life)
local text = ffi.string
local slow_read, slow_write, slow_length, slow_finish = part.read, part.write, part.length, run.finish
local NULL, FALSE, TRUE, NUMBER, STRING, ARRAY = 1, 2, 3, 4, 5, 7 -- doc_kind

-- The tables that stand for nodes, see proxy.c.
local NEAR = 64
local made, born, metas = proxy.made, proxy.born, proxy.metas
local root, life = nil, 0 -- of the event that runs

local meta_of

local function make(node)
  local t = setmetatable({}, metas[node] or meta_of(node))
  made[node], born[node] = t, life
  return t
end

local function get(t, key, node)
  local of, kind = type(key), 0
  if of == "string" then
    kind = read(document, node, key, #key)
  elseif of == "number" then
    kind = element(front, node, key)
  end
  if kind == STRING then return text(found.str, found.str_len) end
  if kind == NUMBER then return found.num end
  if kind <= NULL then return nil end
  if kind == TRUE then return true end
  if kind == FALSE then return false end
  local child = found.got
  if kind > ARRAY or child >= NEAR then return slow_read(t, key) end
  if born[child] == life then return made[child] end
  return make(child)
end

local function set(t, key, value, node)
  if type(key) ~= "string" then return slow_write(t, key, value) end
  local kind, fault = type(value), 1
  if value == nil then
    fault = removed(document, node, key, #key)
  elseif kind == "string" then
    fault = set_string(document, node, key, #key, value, #value)
  elseif kind == "number" then
    fault = set_number(document, node, key, #key, value)
  elseif kind == "boolean" then
    fault = set_literal(document, node, key, #key, value and TRUE or FALSE)
  end
  if fault ~= 0 then return slow_write(t, key, value) end
end

-- meta makes the metatable of a node. A trace has room for few tail calls, so there
-- is none for what is common.
local function meta(node, index, newindex, len)
  metas[node] = {
    node, proxy.front, __index = index, __newindex = newindex, __len = len,
    __pairs = part.pairs, __ipairs = part.ipairs, __metatable = false,
  }
  return metas[node]
end

for node = 0, NEAR - 1 do born[node] = 0 end

local root_meta = meta(0, function(t, key)
  if t ~= root then return slow_read(t, key) end
  return (get(t, key, 0))
end, function(t, key, value)
  if t ~= root then return slow_write(t, key, value) end
  set(t, key, value, 0)
end, slow_length)

-- meta_of makes the metatable of a node, when a table is to stand for it first.
function meta_of(node)
  return meta(node, function(t, key)
    if made[node] ~= t or born[node] ~= life then return slow_read(t, key) end
    return (get(t, key, node))
  end, function(t, key, value)
    if made[node] ~= t or born[node] ~= life then return slow_write(t, key, value) end
    set(t, key, value, node)
  end, function(t)
    if made[node] ~= t or born[node] ~= life then return slow_length(t) end
    return length(front, node)
  end)
end
proxy.adopt(meta_of)

-- Patterns. What quick.c does not do, errors too, is left to the functions in C.

local strings = debug.getmetatable("").__index
local slow_match, slow_find, sub = strings.match, strings.find, strings.sub
local quick_find, quick = calls.find, ffi.cast("void *", proxy.quick)
local match = ffi.cast("struct match *", proxy.quick)
local WHOLE = 5

local function capture(s, i)
  local c = match.capture[i]
  return sub(s, c.from, c.to)
end

function strings.match(s, pattern, init)
  if type(s) ~= "string" or type(pattern) ~= "string" or init ~= nil and type(init) ~= "number" then
    return slow_match(s, pattern, init)
  end
  local n = quick_find(quick, s, #s, pattern, #pattern, init or 1)
  if n == 0 then return nil end
  if n == 1 then return (capture(s, 0)) end
  if n == 2 then return capture(s, 0), (capture(s, 1)) end
  if n == 3 then return capture(s, 0), capture(s, 1), (capture(s, 2)) end
  if n == WHOLE then return (sub(s, match.whole.from, match.whole.to)) end
  return slow_match(s, pattern, init)
end

function strings.find(s, pattern, init, plain)
  if plain or type(s) ~= "string" or type(pattern) ~= "string" or init ~= nil and type(init) ~= "number" then
    return slow_find(s, pattern, init, plain)
  end
  local n = quick_find(quick, s, #s, pattern, #pattern, init or 1)
  if n == 0 then return nil end
  local from, to = match.whole.from, match.whole.to
  if n == WHOLE then return from, to end
  if n == 1 then return from, to, (capture(s, 0)) end
  if n == 2 then return from, to, capture(s, 0), (capture(s, 1)) end
  return slow_find(s, pattern, init, plain)
end

-- begin makes the table that stands for the event.
local function begin()
  life = now[0]
  root = setmetatable({}, root_meta)
  made[0] = root
  return root
end

local function done(...)
  local result = ...
  if select("#", ...) == 1 then
    if result == nil then return dropped(front) end
    if result == root and sent(front) == 0 then return end
  end
  slow_finish(...)
end

if of_values then
  local slow_value, sent_string, sent_number = run.value, calls.sent_string, calls.sent_number
  done = function(result)
    local kind = type(result)
    if kind == "string" and sent_string(front, result, #result) == 0 then return end
    if kind == "number" and sent_number(front, result) == 0 then return end
    slow_value(result)
  end
end

return function(main)
  local spins = 100
  -- A trace that meets a loop of the script cannot begin at a function, but it can
  -- where a loop ends, so there is one here; it has been compiled before it is used.
  local function single()
    for _ = 1, spins do end
    if spins > 1 then return end
    done(main(begin()))
  end
  single()
  spins = 1
  -- Its first laps are empty, so that it is compiled before what it calls is.
  local laps = 54
  local function all()
    while true do
      if laps > 0 then
        laps = laps - 1
      else
        local state = next_event(front)
        if state == 0 then return end
        if state == 2 then run.fresh() end
        done(main(begin()))
      end
    end
  end
  return single, all
end
