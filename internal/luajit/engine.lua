-- Adds to a script's globals the functions for documents, and returns a function that makes the
-- drivers for a script's main and timer: for each of them one that runs one event, compiled as a
-- function, and one that runs a batch, compiled as a loop. When an event fails, the error leaves
-- the driver, and C starts the driver again, so that no pcall is needed here.
local globals, container, number, json, run, gocall, of_values, native, extension = ...

local error, getmetatable, next, select, setmetatable, tonumber, type, unpack =
  error, getmetatable, next, select, setmetatable, tonumber, type, unpack
local is_container = container.is

-- is_document distinguishes a document from a plain table. A proxy has a hidden metatable.
local function is_document(v)
  local kind = type(v)
  return kind == "userdata" and is_container(v)
    or kind == "table" and getmetatable(v) == false and is_container(v)
end

function globals.type(...)
  local kind = type(...)
  if kind == "userdata" and is_container((...)) then return "table" end
  return kind
end

function globals.next(t, key)
  if is_document(t) then return container.next(t, key) end
  return next(t, key)
end

function globals.tonumber(v, ...)
  if type(v) == "userdata" then return number(v) end
  return tonumber(v, ...)
end

-- copy_list copies an array's elements to a table.
local function copy_list(array)
  local t, n = {}, #array
  for i = 1, n do t[i] = array[i] end
  return t, n
end

local tables = debug.getmetatable(globals.table).__index
local insert, remove, concat, sort, move = tables.insert, tables.remove, tables.concat, tables.sort, tables.move

function tables.insert(t, ...)
  if is_document(t) then return container.insert(t, ...) end
  if getmetatable(t) == false then error("attempt to change a library", 2) end
  return insert(t, ...)
end

function tables.remove(t, ...)
  if is_document(t) then return container.remove(t, ...) end
  return remove(t, ...)
end

function tables.concat(t, separator, from, to)
  if is_document(t) then
    local n
    t, n = copy_list(t)
    to = to or n
  end
  return concat(t, separator, from or 1, to or #t)
end

function tables.sort(t, less)
  if not is_document(t) then return sort(t, less) end
  local sorted, n = copy_list(t)
  sort(sorted, less)
  for i = 1, n do t[i] = sorted[i] end
end

-- move replaces the library's own, which ignores metatables.
function tables.move(from, first, last, at, to)
  to = to or from
  if not is_document(from) and not is_document(to) then
    if getmetatable(to) == false then error("attempt to change a library", 2) end
    return move(from, first, last, at, to)
  end
  first, last, at = tonumber(first), tonumber(last), tonumber(at)
  if not (first and last and at) then error("bad argument to 'move' (number expected)", 2) end
  if at > last or at <= first or to ~= from then
    for i = first, last do to[i + at - first] = from[i] end
  else
    for i = last, first, -1 do to[i + at - first] = from[i] end
  end
  return to
end

local function unpack_any(t, from, to)
  if is_document(t) then
    local n
    t, n = copy_list(t)
    to = to or n
  end
  return unpack(t, from or 1, to or #t)
end
globals.unpack, tables.unpack = unpack_any, unpack_any

-- Go functions. The script leaves a request and yields. Function 0 reads a file. In a Caller, C
-- calls functions that do not wait, and Go calls a call's last function after the call has ended
-- (tailcall.c). Entering and leaving a trace that contains little but a call of C costs more than
-- the trace saves, hence minstitch.
local request, results, wait = gocall.request, gocall.results, perigee_wait
if gocall.direct and native then require "jit.opt".start("minstitch=32") end

local function yielding(function_number)
  return function(...)
    if request(function_number, ...) then return end
    wait()
    return results()
  end
end

local libraries = {json = json, log = perigee_log, stats = {}}
do
  local count = 0
  for module, name, pure in gocall.names:gmatch("([^\n]+)%.([^\n\t]+)(\t?)") do
    count = count + 1
    libraries[module] = libraries[module] or {}
    libraries[module][name] = (pure ~= "" and gocall.direct or yielding)(count)
  end
end
if libraries.time and gocall.now then libraries.time.now, libraries.time.unix = gocall.now, gocall.unix end

local measure = gocall.measure
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
globals.os, modules.os = modules.os, nil -- a global of Lua, not loaded by require

local read_file, compile, pcall, LOADING = yielding(0), gocall.compile, globals.pcall, {}
local find_text, gsub, cut = string.find, string.gsub, string.sub

-- Go checks names again, but never sees a long one, which may come from an event.
local NAME_MAX, NAME_SHOWN = 200, 50
local function check_name(name)
  local allowed = #name <= NAME_MAX and find_text(name, "^[A-Za-z0-9_.-]+$")
  if allowed and not find_text("." .. name .. ".", "..", 1, true) then return end
  local shown = gsub(cut(name, 1, NAME_SHOWN), "[^A-Za-z0-9_./-]", "?")
  error('invalid module name "' .. shown .. '"; use "name", or "folder.name" for the file folder/name.lua', 3)
end

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

-- The modules of the extension, created when a script first requires one of them.
local extended = {} -- names
local needs_timer = extension and extension.timer -- the script must define a function timer
if extension then
  extension.json = json
  for name in extension.modules:gmatch "[^\n]+" do extended[name] = true end
end
local function open_extension()
  local marker = extension.marker
  local function type_of(v) -- does not call C for the modules' own userdata
    local kind = type(v)
    if kind == "userdata" and getmetatable(v) ~= marker and is_container(v) then return "table" end
    return kind
  end
  -- Coroutines are those that the script sees. Transactions and locks of an abandoned coroutine end
  -- with the event, so no collection is needed to find abandoned ones.
  local environment = setmetatable({pcall = pcall, next = globals.next, type = type_of, collectgarbage = false,
    coroutine = globals.coroutine}, {__index = _G})
  extension.collect = extension.collect and collectgarbage or nil
  local make = setfenv(assert(loadstring(extension.source, "=[perigee]")), environment)()
  for name, module in next, make(require "ffi", extension) do modules[name] = perigee_library(module) end
end

function globals.require(name)
  if type(name) ~= "string" then error("bad argument #1 to 'require' (string expected)", 2) end
  if extended[name] then
    if modules[name] == nil then open_extension() end
    needs_timer = needs_timer or name == "timer"
  end
  local module = modules[name]
  if module == nil then
    check_name(name)
    return (load_file(name))
  end
  if module == LOADING then error("require '" .. name .. "': the file requires itself", 2) end
  return module
end

-- timer_main returns the function that runs the script's timer on a due timer, an event.
local function timer_main(timer)
  if not (extension and extension.clock) then return function() end end
  local kind = type(timer)
  extension.handles_timers = kind == "function"
  if kind == "function" then
    if not extension.begin_timer then open_extension() end
    local begin_timer = extension.begin_timer
    return function(event)
      local key, due = event.key, event.due
      if not begin_timer(key, due) then return nil end
      return timer(key, due)
    end
  end
  local problem = "no function timer"
  if kind ~= "nil" then problem = "timer is a " .. kind end
  problem = problem .. "; define 'function timer(key, due)' as a global; where a local variable is named timer too, " ..
    "as in 'local timer = require \"timer\"', write 'function _G.timer(key, due)'"
  if needs_timer then error(problem, 0) end
  return function() error(problem, 0) end
end

if not native then
  local next_event, add = run.next_event, of_values and run.add_column_value or run.add_results
  local function drivers(main)
    local function one()
      local event = next_event()
      if event == nil then return false end
      add(main(event))
      return true
    end
    return one, function() while one() do end end
  end
  return function(timer, main)
    local one, batch = drivers(main)
    return one, batch, drivers(timer_main(timer))
  end
end

-- Compiled scripts see proxies, which access the document through FFI. A script never gets a cdata.
-- Rare cases, and all cases that may raise an error, go to the C functions.

local ffi = require "ffi"
ffi.cdef(native.declarations)
local C = ffi.cast("struct plua_functions *", native.functions)
local next_event, add_event, drop = C.next_event, C.add_event, C.drop
local read, element, length, remove_field = C.read, C.element, C.length, C.remove
local set_number, set_string, set_literal = C.set_number, C.set_string, C.set_literal
local engine, document = ffi.cast("plua_engine *", native.engine), ffi.cast("doc *", native.document)
local found = ffi.cast("struct doc_found *", native.document)
local current_generation = ffi.cast("double *", native.generation)
local text = ffi.string
local slow_read, slow_write, slow_length = container.read, container.write, container.length
local add_results = run.add_results
local NULL, FALSE, TRUE, NUMBER, STRING, ARRAY = 1, 2, 3, 4, 5, 7 -- doc_kind

-- See proxy.c.
local NODES = native.nodes
local tables_by_node, generations, metatables = native.tables, native.generations, native.metatables
local root, generation = nil, 0 -- of the current event

local make_metatable

local function make_proxy(node)
  local t = setmetatable({}, metatables[node] or make_metatable(node))
  tables_by_node[node], generations[node] = t, generation
  return t
end

local function get(t, key, node)
  local of, kind = type(key), 0
  if of == "string" then
    kind = read(document, node, key, #key)
  elseif of == "number" then
    kind = element(engine, node, key)
  end
  if kind == STRING then return text(found.str, found.str_len) end
  if kind == NUMBER then return found.num end
  if kind <= NULL then return nil end
  if kind == TRUE then return true end
  if kind == FALSE then return false end
  local child = found.got
  if kind > ARRAY or child >= NODES then return slow_read(t, key) end
  if generations[child] == generation then return tables_by_node[child] end
  return make_proxy(child)
end

local function set(t, key, value, node)
  if type(key) ~= "string" then return slow_write(t, key, value) end
  local kind, failed = type(value), 1
  if value == nil then
    failed = remove_field(document, node, key, #key)
  elseif kind == "string" then
    failed = set_string(document, node, key, #key, value, #value)
  elseif kind == "number" then
    failed = set_number(document, node, key, #key, value)
  elseif kind == "boolean" then
    failed = set_literal(document, node, key, #key, value and TRUE or FALSE)
  end
  if failed ~= 0 then return slow_write(t, key, value) end
end

-- A trace supports few tail calls, so metamethods that run often have none.
local function add_metatable(node, index, newindex, len)
  metatables[node] = {
    node, native.engine, __index = index, __newindex = newindex, __len = len,
    __pairs = container.pairs, __ipairs = container.ipairs, __metatable = false,
  }
  return metatables[node]
end

for node = 0, NODES - 1 do generations[node] = 0 end

local root_metatable = add_metatable(0, function(t, key)
  if t ~= root then return slow_read(t, key) end
  return (get(t, key, 0))
end, function(t, key, value)
  if t ~= root then return slow_write(t, key, value) end
  set(t, key, value, 0)
end, slow_length)

-- make_metatable runs when a node gets its first proxy.
function make_metatable(node)
  return add_metatable(node, function(t, key)
    if tables_by_node[node] ~= t or generations[node] ~= generation then return slow_read(t, key) end
    return (get(t, key, node))
  end, function(t, key, value)
    if tables_by_node[node] ~= t or generations[node] ~= generation then return slow_write(t, key, value) end
    set(t, key, value, node)
  end, function(t)
    if tables_by_node[node] ~= t or generations[node] ~= generation then return slow_length(t) end
    return length(engine, node)
  end)
end
native.set_make_metatable(make_metatable)

-- Patterns. The C functions handle patterns that pattern_cache.c does not, and errors.

local strings = debug.getmetatable("").__index
local slow_match, slow_find, sub = strings.match, strings.find, strings.sub
local find, patterns = C.find, ffi.cast("plua_pattern_cache *", native.patterns)
local match = ffi.cast("plua_found *", native.patterns)
local WHOLE = 5 -- PLUA_FOUND_WHOLE

local function capture(s, i)
  local c = match.capture[i]
  return sub(s, c.from, c.to)
end

function strings.match(s, pattern, init)
  if type(s) ~= "string" or type(pattern) ~= "string" or init ~= nil and type(init) ~= "number" then
    return slow_match(s, pattern, init)
  end
  local n = find(patterns, s, #s, pattern, #pattern, init or 1)
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
  local n = find(patterns, s, #s, pattern, #pattern, init or 1)
  if n == 0 then return nil end
  local from, to = match.whole.from, match.whole.to
  if n == WHOLE then return from, to end
  if n == 1 then return from, to, (capture(s, 0)) end
  if n == 2 then return from, to, capture(s, 0), (capture(s, 1)) end
  return slow_find(s, pattern, init, plain)
end

-- begin returns the proxy of the event.
local function begin()
  generation = current_generation[0]
  root = setmetatable({}, root_metatable)
  tables_by_node[0] = root
  return root
end

local function finish(...)
  local result = ...
  if select("#", ...) == 1 then
    if result == nil then return drop(engine) end
    if result == root and add_event(engine) == 0 then return end
  end
  add_results(...)
end

if of_values then
  local add_column_value, add_string, add_number = run.add_column_value, C.add_string, C.add_number
  finish = function(result)
    local kind = type(result)
    if kind == "string" and add_string(engine, result, #result) == 0 then return end
    if kind == "number" and add_number(engine, result) == 0 then return end
    add_column_value(result)
  end
end

local function drivers(main)
  local spins = 100
  -- A trace that meets a loop of the script cannot begin at a function, but it can begin at the end
  -- of a loop. So this function has a loop, which is compiled before the driver is used.
  local function one()
    for _ = 1, spins do end
    if spins > 1 then return end
    finish(main(begin()))
  end
  one()
  spins = 1
  -- The first rounds do nothing, so that the loop is compiled before the functions that it calls.
  local laps = 54
  local function batch()
    while true do
      if laps > 0 then
        laps = laps - 1
      else
        local state = next_event(engine)
        if state ~= 1 then -- PLUA_NEXT_READY
          if state == 0 or not run.next_unusual(state) then return end
        end
        finish(main(begin()))
      end
    end
  end
  return one, batch
end

return function(timer, main)
  local one, batch = drivers(main)
  return one, batch, drivers(timer_main(timer))
end
