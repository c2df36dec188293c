-- Records the events of its VM's compiler. Returns a function that returns them as text: one line
-- for each kind of event at each position, with the tab-separated fields event, reason, subject,
-- file, line, count.
local globals, script_position = ...

local attach, util = jit.attach, require("jit.util")
local info, traceinfo = util.funcinfo, util.traceinfo
local format, tostring, type = string.format, tostring, type

local MAX_EVENTS = 1000 -- distinct lines

-- names maps functions to their names in scripts.
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

local counts, kinds = {}, 0

local function count_event(event, reason, subject, file, line)
  local key = format("%s\t%s\t%s\t%s\t%d", event, reason, subject, file, line)
  local count = counts[key]
  if not count then
    if kinds == MAX_EVENTS then return end
    kinds = kinds + 1
  end
  counts[key] = (count or 0) + 1
end

-- position returns the file and line of fn at pc, if fn belongs to a script.
local function position(fn, pc)
  local at = info(fn, pc)
  local source = at.source
  if source and source:byte() == 64 then return source:sub(2), at.currentline or at.linedefined or 0 end
end

local starts = {}      -- the position at which each trace starts
local file, line       -- position in the script of the instruction being recorded
local called           -- name of the last recorded C function

local function follow(fn, pc)
  local f, l = position(fn, pc)
  if f then file, line, called = f, l, nil end
  if not info(fn).source then called = names[fn] or "a function in C" end
end

attach(function(_, fn, pc) follow(fn, pc) end, "record")

attach(function(event, trace, fn, pc, code, subject)
  if event == "start" then
    file, line, called = nil, nil, nil
    follow(fn, pc)
    if not file then file, line = script_position() end
    starts[trace] = {file or "", line or 0}
  elseif event == "stop" then
    local at = starts[trace] or {"", 0}
    local link = traceinfo(trace).linktype
    if link == "stitch" or link == "interpreter" then
      count_event("left", link, called or "", file or "", line or 0)
    end
    count_event("compiled", link, "", at[1], at[2])
  elseif event == "abort" then
    follow(fn, pc)
    if not position(fn, pc) then event = "inside" end
    if not file then file, line = script_position() end
    if type(subject) == "function" then subject = names[subject] or called or "a function" end
    if type(subject) ~= "string" and type(subject) ~= "number" then subject = called or "" end
    count_event(event, tostring(code), tostring(subject), file or "", line or 0)
  end
end, "trace")

return function()
  local all = {}
  for key, count in pairs(counts) do all[#all + 1] = key .. "\t" .. count .. "\n" end
  return table.concat(all)
end
