-- Runs the tests of one file: lua run.lua FILE FOLDER [TEST]. The file returns a table of
-- functions by name; each gets the module, opened on a new folder below FOLDER, and the
-- harness t. TEST selects a single test.
local file, folder, only = ...
local setting = os.getenv "NODEDB_TEST_JIT" -- options of LuaJIT's compiler
if setting then assert(loadstring(setting))() end
local ndb = require "nodedb"

local t = {folder = folder, lua = arg[-1], version = rawget(_G, "jit") and jit.version or _VERSION}
t.collecting = os.getenv "NODEDB_TEST_COLLECT" == "1" -- collect all garbage before each call of C

local function shown(v)
  return type(v) == "string" and string.format("%q", v) or tostring(v)
end

function t.equal(got, want, what)
  if got ~= want or math.type and math.type(got) ~= math.type(want) then
    error((what and what .. ": " or "") .. "got " .. shown(got) .. ", want " .. shown(want), 2)
  end
end

-- list compares the elements of two arrays.
function t.list(got, want, what)
  local function text(list)
    local parts = {}
    for i = 1, #list do parts[i] = shown(list[i]) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  if text(got) ~= text(want) then
    error((what and what .. ": " or "") .. "got " .. text(got) .. ", want " .. text(want), 2)
  end
end

-- fails checks that f raises an error that contains want, and returns the error.
function t.fails(want, f, ...)
  local ok, problem = pcall(f, ...)
  if ok then error("no error, want one with " .. shown(want), 2) end
  if not tostring(problem):find(want, 1, true) then
    error("got the error " .. shown(problem) .. ", want one with " .. shown(want), 2)
  end
  return problem
end

-- collect returns the first results of an iterator as a list.
function t.collect(...)
  local list = {}
  for v in ... do list[#list + 1] = v end
  return list
end

-- start runs a chunk in another process of the same Lua, with the store open. It returns
-- a function that waits for the process and returns its output.
function t.start(chunk)
  local path = os.tmpname()
  local out = assert(io.open(path, "w"))
  out:write("local ndb = require 'nodedb' ndb.open(...) ", chunk, "\nndb.close()\n")
  out:close()
  local pipe = assert(io.popen(("'%s' '%s' '%s' 2>&1"):format(t.lua, path, t.store)))
  return function()
    local text = pipe:read("*a")
    pipe:close()
    os.remove(path)
    return text
  end
end

-- other runs a chunk in another process and returns its output.
function t.other(chunk) return t.start(chunk)() end

local tests = dofile(file)
local names = {}
for name in pairs(tests) do names[#names + 1] = name end
table.sort(names)
local failed = 0
for i, name in ipairs(names) do
  if not only or only == name then
    t.store = folder .. "/" .. i
    ndb.open(t.store)
    local ok, problem = xpcall(function() return tests[name](ndb, t) end, debug.traceback)
    local closed, close_problem = pcall(ndb.close)
    if not ok or not closed then
      failed = failed + 1
      print("FAIL " .. name .. ": " .. tostring(ok and close_problem or problem))
    end
  end
end
print(("%d tests, %d failed"):format(#names, failed))
os.exit(failed == 0 and 0 or 1, true)
