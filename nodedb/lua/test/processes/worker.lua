-- A process of TestProcesses: lua worker.lua FOLDER NAME SECONDS. It changes nodes concurrently
-- with other workers, checks everything that it reads, and prints a line for all durable changes.
local folder, name, seconds = arg[1], arg[2], tonumber(arg[3])
local ndb = require "nodedb"
ndb.open(folder)
io.stdout:setvbuf("no")

local ACCOUNTS, TOTAL = 10, 1000
local bank, log, counters = ndb.node("^bank"), ndb.node("^log", name), ndb.node("^counters")

local function total()
  local sum = 0
  for _, amount in bank:values() do sum = sum + amount end
  return sum
end

-- transfer moves an amount and writes one entry to the worker's own log, atomically.
local function transfer(from, to, amount)
  local sum = total()
  if sum ~= TOTAL then error("the accounts hold " .. sum) end
  bank[from].__ = bank[from].__ - amount
  bank[to].__ = bank[to].__ + amount
  local number = log:incr()
  log[number].__ = number
  return number
end

-- underLock changes two counters that must stay equal, without a transaction.
local function underLock()
  counters.locked:lock_incr(30)
  local n = counters.locked.a:get(0)
  if counters.locked.b:get(0) ~= n then error("the counters under the lock differ") end
  counters.locked.a.__ = n + 1
  counters.locked.b.__ = n + 1
  counters.locked:lock_decr()
end

ndb.tp(function()
  if bank:data() > 0 then return end
  for i = 1, ACCOUNTS do bank[i].__ = TOTAL / ACCOUNTS end
end)
print("ready")

math.randomseed(#name + os.time())
local deadline = os.time() + seconds
local round, superseded, halfDone = 0, 0, false
while os.time() < deadline do
  round = round + 1
  local ok, problem = pcall(function()
    if halfDone then -- it was superseded between two changes under the lock
      ndb.lock()
      counters.locked:kill()
      halfDone = false
    end
    local from, to = math.random(ACCOUNTS), math.random(ACCOUNTS)
    if round % 10 == 0 then
      local number = ndb.tp(transfer, from, to, math.random(5))
      print("durable " .. number)
    else
      ndb.tp("BATCH", transfer, from, to, math.random(5))
    end
    counters[name]:incr()
    counters.both:incr()
    if round % 20 == 0 then underLock() end
  end)
  if not ok then
    if ndb.get_error_code(problem) ~= ndb.NDB_E_SUPERSEDED then
      print("FAIL " .. tostring(problem))
      os.exit(1)
    end
    superseded, halfDone = superseded + 1, true
  end
end
ndb.close()
print("done " .. round .. " rounds, superseded " .. superseded .. " times")
