-- Gives a script's globals what documents need, and returns the maker of the
-- driver: the loop that passes events through main. A failing event leaves that
-- loop and is dealt with in C; hence no pcall here.
local globals, part, number, json, step, finish = ...

local error, getmetatable, next, select, tonumber, type, unpack =
  error, getmetatable, next, select, tonumber, type, unpack
local is_document = part.is
local library = perigee_library

function globals.type(...)
  local kind = type(...)
  if kind == "userdata" and is_document((...)) then return "table" end
  return kind
end

function globals.next(t, key)
  if type(t) == "userdata" then return part.next(t, key) end
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
  if type(t) == "userdata" then return part.insert(t, ...) end
  if getmetatable(t) == false then error("attempt to change a library", 2) end
  return insert(t, ...)
end

function tables.remove(t, ...)
  if type(t) == "userdata" then return part.remove(t, ...) end
  return remove(t, ...)
end

function tables.concat(t, separator, from, to)
  if type(t) == "userdata" then
    local n
    t, n = list(t)
    to = to or n
  end
  return concat(t, separator, from or 1, to or #t)
end

function tables.sort(t, less)
  if type(t) ~= "userdata" then return sort(t, less) end
  local sorted, n = list(t)
  sort(sorted, less)
  for i = 1, n do t[i] = sorted[i] end
end

local function unpack_any(t, from, to)
  if type(t) == "userdata" then
    local n
    t, n = list(t)
    to = to or n
  end
  return unpack(t, from or 1, to or #t)
end
globals.unpack, tables.unpack = unpack_any, unpack_any

local modules = {json = library(json)}
globals.json = modules.json

function globals.require(name)
  local module = modules[name]
  if not module then error("there is no module '" .. tostring(name) .. "'", 2) end
  return module
end

return function(main)
  return function()
    while true do
      local event = step()
      if event == nil then return end
      finish(main(event))
    end
  end
end
