-- A process of TestAbandonedCoroutines: lua abandoned.lua FOLDER FIRST. It repeatedly suspends a
-- coroutine inside a transaction, then writes, and prints a line for each durable write. Every
-- second coroutine could still be resumed.
local ndb = require "nodedb"
ndb.open(arg[1])
ndb.tp_limits {seconds = 0.02}
io.stdout:setvbuf("no")

local kept
local function abandon(number)
  local co = coroutine.create(function()
    ndb.tp(function()
      ndb.set("^lost", number, 1)
      coroutine.yield()
    end)
  end)
  coroutine.resume(co)
  kept = number % 2 == 0 and co
end

local function write(number)
  ndb.set("^log", number, number)
  ndb.sync()
end

for number = tonumber(arg[2]) + 1, 1e9 do
  abandon(number)
  local ok, problem
  repeat
    ok, problem = pcall(write, number)
    if not ok and ndb.get_error_code(problem) ~= ndb.NDB_E_LEVEL then
      print("FAIL " .. tostring(problem))
      os.exit(1)
    end
  until ok
  if number % 2 == 0 and coroutine.status(kept) == "suspended" and coroutine.resume(kept) then
    print("FAIL the coroutine of " .. number .. " goes on in a transaction that has ended")
    os.exit(1)
  end
  print("durable " .. number)
end
