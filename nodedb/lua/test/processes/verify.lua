-- Checks the workers' changes: lua verify.lua FOLDER NAME DURABLE NAME DURABLE …
local ndb = require "nodedb"
ndb.open(arg[1])

local function check(ok, ...)
  if not ok then
    print("FAIL " .. table.concat({...}, " "))
    os.exit(1)
  end
end

local faults, text = ndb.check()
check(faults == 0, "the store has", faults, "faults:", text)

local sum = 0
for _, amount in ndb.node("^bank"):values() do sum = sum + amount end
check(sum == 1000, "the accounts hold", sum)

local both = 0
for i = 2, #arg, 2 do
  local name, durable = arg[i], tonumber(arg[i + 1])
  local log = ndb.node("^log", name)
  check(log.__ >= durable, name, "said that entry", durable, "is durable; the last one is", log.__)
  local count = 0
  for number, value in log:values() do
    count = count + 1
    check(number == count and value == count, "entry", count, "of", name, "is", number, tostring(value))
  end
  check(count == log.__, name, "has", count, "entries and counted", log.__)
  both = both + ndb.get("^counters", name)
end
-- A process killed between two increments makes only one of them.
check(math.abs(ndb.get("^counters", "both") - both) <= 2, "the common counter is", ndb.get("^counters", "both"),
  "and the sum", both)
local locked = ndb.node("^counters", "locked")
check(math.abs(locked.a:get(0) - locked.b:get(0)) <= 1, "counters under the lock:", locked.a:get(0), locked.b:get(0))
locked:lock_incr(0) -- dead workers hold no locks
check(ndb.stat().processes == 1, "processes:", ndb.stat().processes)
print "consistent"
