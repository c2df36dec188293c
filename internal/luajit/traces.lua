-- Listens to the compiler of its VM, and returns what tells what was heard: a line for
-- each kind of event at each place, with tabs between what, why, about what, file,
-- line and how often.
local globals = ...

local attach, util = jit.attach, require("jit.util")
local info, traceinfo = util.funcinfo, util.traceinfo
local getinfo, format, tostring, type = debug.getinfo, string.format, tostring, type

local MOST = 1000 -- kinds and places

-- names finds what scripts call a function.
local names = {}
local function collect(prefix, t)
  for name, value in pairs(t) do
    if type(value) == "function" and not names[value] then names[value] = prefix .. tostring(name) end
  end
end
for name, t in pairs(_G) do
  if type(t) == "table" and t ~= _G then collect(name .. ".", t) end
end
collect("", _G)
for name, t in pairs(globals) do
  local meta = type(t) == "table" and debug.getmetatable(t)
  if meta and type(meta.__index) == "table" then collect(name .. ".", meta.__index) end
end
collect("", globals)

local heard, kinds = {}, 0

local function hear(what, why, about, file, line)
  local key = format("%s\t%s\t%s\t%s\t%d", what, why, about, file, line)
  local count = heard[key]
  if not count then
    if kinds == MOST then return end
    kinds = kinds + 1
  end
  heard[key] = (count or 0) + 1
end

-- place is where in a script fn is at pc, if it is a script's.
local function place(fn, pc)
  local at = info(fn, pc)
  local source = at.source
  if source and source:byte() == 64 then return source:sub(2), at.currentline or at.linedefined or 0 end
end

-- above looks for a script among those who called what is recorded.
local function above()
  for level = 3, 40 do
    local at = getinfo(level, "Sl")
    if not at then return end
    if at.source:byte() == 64 and at.currentline > 0 then return at.source:sub(2), at.currentline end
  end
end

local starts = {}      -- of traces, as text
local file, line       -- where in the script the recording is
local called           -- the name of the C function that was recorded last

local function follow(fn, pc)
  local f, l = place(fn, pc)
  if f then file, line, called = f, l, nil end
  if not info(fn).source then called = names[fn] or "a function in C" end
end

attach(function(_, fn, pc) follow(fn, pc) end, "record")

attach(function(what, trace, fn, pc, code, about)
  if what == "start" then
    file, line, called = nil, nil, nil
    follow(fn, pc)
    if not file then file, line = above() end
    starts[trace] = {file or "", line or 0}
  elseif what == "stop" then
    local at = starts[trace] or {"", 0}
    local link = traceinfo(trace).linktype
    if link == "stitch" or link == "interpreter" then
      hear("left", link, called or "", file or "", line or 0)
    end
    hear("compiled", link, "", at[1], at[2])
  elseif what == "abort" then
    follow(fn, pc)
    if not place(fn, pc) then what = "inside" end
    if not file then file, line = above() end
    if type(about) == "function" then about = names[about] or called or "a function" end
    if type(about) ~= "string" and type(about) ~= "number" then about = called or "" end
    hear(what, tostring(code), tostring(about), file or "", line or 0)
  elseif what == "flush" then
    hear("flush", "", "", "", 0)
  end
end, "trace")

return function()
  local all = {}
  for key, count in pairs(heard) do all[#all + 1] = key .. "\t" .. count .. "\n" end
  return table.concat(all)
end
