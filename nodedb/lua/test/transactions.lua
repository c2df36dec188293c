-- Transactions: results, rollback, nesting, restart, conflicts with another process.
local T = {}

function T.commit_and_results(ndb, t)
  local n = ndb.node("^t")
  local a, b, c = ndb.tp(function(x, y)
    n.a.__ = x
    t.equal(n.a.__, x)
    return x, nil, y
  end, 1, 2)
  t.equal(a, 1)
  t.equal(b, nil)
  t.equal(c, 2)
  t.equal(n.a.__, 1)
  t.equal(t.other("print(ndb.get('^t', 'a'))"), "1\n", "durable when it returns")
  local double = ndb.transaction(function(x) n.b.__ = x return 2 * x end)
  t.equal(double(4), 8)
  t.equal(double(5), 10)
  t.equal(n.b.__, 5)
  t.equal(ndb.tp("BATCH", function() return "x" end), "x")
  t.equal(ndb.tp("", {}, function() return "x" end), "x")
  t.fails("the function to run is missing", ndb.tp, "x")
  t.fails("the function to run is missing", ndb.transaction)
end

function T.errors_roll_back(ndb, t)
  local n = ndb.node("^t")
  n.a.__ = 1
  local e = t.fails("my own", ndb.tp, function()
    n.a.__ = 2
    n.b:incr()
    n:kill()
    error("my own", 0)
  end)
  t.equal(e, "my own")
  t.equal(n.a.__, 1)
  t.equal(n.b.__, nil)
  local object = {}
  local ok, raised = pcall(ndb.tp, function() error(object) end)
  t.equal(ok, false)
  t.equal(raised, object)
end

function T.rollback(ndb, t)
  local n = ndb.node("^t")
  local e = t.fails("NDB_TP_ROLLBACK", ndb.tp, function()
    n.a.__ = 2
    ndb.trollback()
  end)
  t.equal(ndb.get_error_code(e), ndb.NDB_TP_ROLLBACK)
  t.equal(n.a.__, nil)
  t.fails("no transaction is open", ndb.trollback)
  t.fails("no transaction is open", ndb.trestart)
end

function T.nested(ndb, t)
  local n = ndb.node("^t")
  ndb.tp(function()
    n.a.__ = 1
    ndb.tp(function() n.b.__ = 1 end)
    pcall(ndb.tp, function()
      n.a.__ = 2
      n.c.__ = 2
      ndb.trollback()
    end)
    t.equal(n.a.__, 1)
    t.equal(n.b.__, 1)
    t.equal(n.c.__, nil)
  end)
  t.equal(n.b.__, 1)
  pcall(ndb.tp, function()
    ndb.tp(function() n.d.__ = 1 end)
    error("outer")
  end)
  t.equal(n.d.__, nil, "an inner commit counts when the outer one does")
end

function T.restart(ndb, t)
  local n = ndb.node("^t")
  local runs = 0
  ndb.node("count").__ = 10
  ndb.node("free").__ = 10
  ndb.tp("", {"count"}, function()
    runs = runs + 1
    n.a:incr()
    ndb.node("count"):incr()
    ndb.node("free"):incr()
    if runs < 3 then ndb.trestart() end
  end)
  t.equal(runs, 3)
  t.equal(n.a.__, 1)
  t.equal(ndb.get("count"), 11, "named: put back")
  t.equal(ndb.get("free"), 13, "not named")
  runs = 0
  ndb.tp(function() -- from a nested transaction, everything
    runs = runs + 1
    n.b:incr()
    ndb.tp(function()
      n.b:incr()
      if runs == 1 then ndb.trestart() end
    end)
  end)
  t.equal(runs, 2)
  t.equal(n.b.__, 2)
end

function T.conflict(ndb, t)
  local n = ndb.node("^t")
  n.__ = 1
  ndb.sync()
  local runs = 0
  ndb.tp(function()
    runs = runs + 1
    local v = n.__
    if runs == 1 then t.other("ndb.node('^t').__ = 100 ndb.sync()") end
    n.__ = v + 1
  end)
  t.equal(runs, 2)
  t.equal(n.__, 101)
end

function T.counters_of_two_processes(ndb, t)
  if t.collecting then return end -- it measures memory
  local finish = t.start [[
    for _ = 1, 2000 do ndb.node('^c').plain:incr() end
    for _ = 1, 200 do
      ndb.tp('BATCH', function() local n = ndb.node('^c').tp n.__ = n:get(0) + 1 end)
    end
  ]]
  local n = ndb.node("^c")
  for _ = 1, 2000 do n.plain:incr() end
  for _ = 1, 200 do
    ndb.tp("BATCH", function() n.tp.__ = n.tp:get(0) + 1 end)
  end
  t.equal(finish(), "")
  t.equal(ndb.tp(function() return n.plain.__ end), 4000)
  t.equal(ndb.tp(function() return n.tp.__ end), 400)
end

-- The caller gets the function's results, even if they look like codes.
function T.results_are_no_codes(ndb, t)
  local n = ndb.node("^t")
  for _, result in ipairs {-101, -102, -103, ndb.NDB_TP_RESTART, ndb.NDB_TP_ROLLBACK, ndb.NDB_E_CONFLICT, 2147483646} do
    local runs = 0
    local got = ndb.tp(function()
      runs = runs + 1
      if runs > 3 then error("it runs again and again") end
      n[result].__ = 1
      return result
    end)
    t.equal(got, result)
    t.equal(runs, 1)
    t.equal(n[result].__, 1, "committed after " .. result)
  end
end

-- Only trestart restarts, and not an error with the same text.
function T.errors_are_no_codes(ndb, t)
  for _, text in ipairs {"nodedb: NDB_TP_RESTART: mine", "x: nodedb: NDB_E_CONFLICT: mine"} do
    local runs = 0
    t.equal(t.fails(text, ndb.tp, function()
      runs = runs + 1
      if runs > 3 then return end
      error(text, 0)
    end), text)
    t.equal(runs, 1)
  end
  local runs = 0
  ndb.tp(function() -- a caught restart has no effect
    runs = runs + 1
    pcall(ndb.trestart)
    if runs > 3 then error("it runs again") end
  end)
  t.equal(runs, 1)
  runs = 0
  ndb.tp(function() -- text added to the error is harmless
    runs = runs + 1
    local ok, problem = pcall(ndb.trestart)
    if not ok and runs == 1 then error("added: " .. problem, 0) end
  end)
  t.equal(runs, 2)
end

function T.limits(ndb, t)
  local n = ndb.node("^t")
  local limits = ndb.tp_limits()
  t.equal(limits.restarts, 1000)
  t.equal(limits.seconds, 60)
  local runs = 0
  local e = t.fails("run 1001 times", ndb.tp, function()
    runs = runs + 1
    n.a.__ = 1
    ndb.trestart()
  end)
  t.equal(ndb.get_error_code(e), ndb.NDB_TP_LIMIT)
  t.equal(runs, 1001)
  t.equal(n.a.__, nil)
  t.equal(ndb.tp_limits({restarts = 3}).restarts, 3)
  runs = 0
  t.fails("run 4 times", ndb.tp, function()
    runs = runs + 1
    ndb.tp(function() ndb.trestart() end)
  end)
  t.equal(runs, 4)
  ndb.tp_limits {seconds = 0.02}
  local function busy(seconds)
    local till = os.clock() + seconds
    while os.clock() < till do end
  end
  e = t.fails("longer than 0.02 s", ndb.tp, function()
    n.b.__ = 1
    busy(0.1)
  end)
  t.equal(ndb.get_error_code(e), ndb.NDB_TP_LIMIT)
  t.equal(n.b.__, nil)
  t.fails("unknown limit \"x\"", ndb.tp_limits, {x = 1})
  t.fails("0 or more", ndb.tp_limits, {seconds = -1})
  t.fails("0 or more", ndb.tp_limits, {restarts = 0 / 0})
  t.fails("a table of limits", ndb.tp_limits, 5)
  ndb.tp_limits {restarts = 1000, seconds = 60}
  n.b.__ = 2
  ndb.sync()
end

-- tp always ends its transaction, whatever fails: later writes are durable.
function T.names_that_are_invalid(ndb, t)
  local n = ndb.node("^t")
  local called = false
  for i, names in ipairs {{"^t"}, {5}, {"ok", ""}, {"ok", {}}, {("x"):rep(40)}} do
    t.fails("NDB_E_ARGUMENT", ndb.tp, names, function() called = true end)
    t.fails("NDB_E_ARGUMENT", ndb.transaction("BATCH", names, function() called = true end))
    t.fails("no transaction is open", ndb.trollback)
    n[i].__ = i
    ndb.sync()
    t.equal(t.other("print(ndb.get('^t', " .. i .. "))"), i .. "\n", "durable after names " .. i)
  end
  t.equal(called, false)
  ndb.tp(function()
    n.outer.__ = 1
    t.fails("NDB_E_ARGUMENT", ndb.tp, {"^t"}, function() end)
    n.outer.more.__ = 2
  end)
  t.equal(t.other("print(ndb.get('^t', 'outer', 'more'))"), "2\n")
end

function T.sync_and_close_inside(ndb, t)
  local n = ndb.node("^t")
  ndb.tp(function()
    n.__ = 1
    t.equal(ndb.get_error_code(t.fails("sync: a transaction is open", ndb.sync)), ndb.NDB_E_LEVEL)
    t.equal(ndb.get_error_code(t.fails("close: a transaction is open", ndb.close)), ndb.NDB_E_LEVEL)
    n.a.__ = 2
  end)
  ndb.sync()
  t.equal(n.a.__, 2)
  ndb.close()
  ndb.open(t.store)
  t.equal(n.a.__, 2)
end

local yields = coroutine.wrap(function()
  pcall(coroutine.yield, true)
  return false
end)()

-- suspended returns a coroutine that has written ^t(name) in a transaction and is suspended inside.
local function suspended(ndb, name, depth)
  local co = coroutine.create(function()
    local function inside()
      ndb.set("^t", name, 1)
      coroutine.yield()
      ndb.set("^t", name, "end", 1)
      return "returned"
    end
    for _ = 2, depth or 1 do
      local f = inside
      inside = function() return (ndb.tp(f)) end
    end
    return ndb.tp(inside)
  end)
  assert(coroutine.resume(co))
  return co
end

-- abandoned creates such a coroutine and drops it. The collector treats leftovers of calls on Lua's
-- stack as used, so it overwrites them.
local function abandoned(...)
  suspended(...)
  local function nothing() end
  nothing(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
    31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58,
      59, 60)
end

-- A transaction belongs to the coroutine that began it: other coroutines get an error until it has
-- ended.
function T.suspended_coroutine(ndb, t)
  local n = ndb.node("^t")
  if not yields then -- Lua 5.1: the yield is an error, which rolls back
    t.fails("yield", suspended, ndb, "x")
    t.equal(n:data(), 0)
    return
  end
  for i = 1, 9 do n.list[i].__ = i end
  local walk, before = n.list:subscripts(), n.list:values()
  t.equal(walk(), 1)
  for depth = 1, 3 do
    local name = "x" .. depth
    local co = suspended(ndb, name, depth)
    local uses = {
      get = function() return n.a.__ end, set = function() n.a.__ = 2 end, set_nil = function() n.a.__ = nil end,
        kill = function() n:kill() end,
      incr = function() n:incr() end, data = function() return n:data() end, count = function() return n:count() end,
      memory = function() ndb.set("m", 1) end, tp = function() ndb.tp(function() end) end, trollback = ndb.trollback,
        trestart = ndb.trestart,
      walk = function() n:subscripts()() end, started = before,
        next = function() return ndb.subscript_next("^t", "") end,
      lock = function() n:lock_incr(0) end, merge = function() n.b:merge(n.a) end,
        load = function() ndb.load("^t(1)=1") end,
      settree = function() n:settree {a = 1} end, cas = function() n:compare_and_set(nil, 1) end, sync = ndb.sync,
        close = ndb.close,
      another = function() assert(coroutine.resume(coroutine.create(function() n.a.__ = 2 end))) end,
    }
    for what, use in pairs(uses) do
      local e = t.fails("a suspended coroutine has a transaction open", use)
      t.equal(ndb.get_error_code(e), ndb.NDB_E_LEVEL, what)
    end
    local ok, result = coroutine.resume(co)
    t.equal(ok and result, "returned")
    t.equal(n[name].__, 1)
    t.equal(n.a.__, nil)
    t.equal(t.other("print(ndb.get('^t', 'x" .. depth .. "', 'end'))"), "1\n", "durable")
  end
  t.equal(walk(), 2)
  t.equal(before(), 1)
end

-- Coroutines that the owner resumes are part of its transaction.
function T.coroutines_inside(ndb, t)
  local n = ndb.node("^t")
  for i = 1, 5 do n[i].__ = i end
  local sum = 0
  local function body()
    for v in coroutine.wrap(function()
      for _, v in n:values() do coroutine.yield(v) end
    end) do
      sum = sum + v
      n.sum.__ = sum
      if v == 5 then break end
    end
    return sum
  end
  t.equal(ndb.tp(body), 15)
  sum = 0
  t.equal(coroutine.wrap(function() return ndb.tp(body) end)(), 15)
  t.equal(n.sum.__, 15)
end

-- An abandoned coroutine does not block others: later writes are durable.
function T.abandoned_coroutine(ndb, t)
  if not yields then return end
  local n = ndb.node("^t")
  for depth = 1, 3 do
    local name = "x" .. depth
    abandoned(ndb, name, depth)
    n.later[depth].__ = depth
    ndb.sync()
    t.equal(n[name]:data(), 0, "rolled back")
    local script = ("print(ndb.get('^t', 'later', %d), ndb.get('^t', '%s'))"):format(depth, name)
    t.equal(t.other(script), depth .. "\tnil\n")
  end
  abandoned(ndb, "y")
  ndb.sync() -- even as the first call
  abandoned(ndb, "y")
  t.equal(ndb.tp(function() n.z.__ = 3 return 4 end), 4)
  t.equal(t.other("print(ndb.get('^t', 'z'), ndb.get('^t', 'y'))"), "3\tnil\n")
  abandoned(ndb, "y")
  ndb.close()
  ndb.open(t.store)
  t.equal(n.y:data(), 0)
  t.equal(n.z.__, 3)
end

-- A coroutine that could still be resumed blocks others until the time limit of transactions. Then
-- its transaction is rolled back, and it does not mistake a later one for its own.
function T.coroutine_beyond_the_limit(ndb, t)
  if not yields then return end
  local n = ndb.node("^t")
  ndb.tp_limits {seconds = 0.2}
  for depth = 1, 2 do
    local co = suspended(ndb, "x", depth)
    t.fails("a suspended coroutine", ndb.set, "^t", "early", 1)
    local till = os.clock() + 0.4
    while os.clock() < till do end
    n.later.__ = depth
    ndb.sync()
    t.equal(t.other("print(ndb.get('^t', 'later'))"), depth .. "\n")
    ndb.tp(function()
      n.later.__ = "inside"
      local ok, problem = coroutine.resume(co)
      t.equal(ok, false)
      t.equal(problem, "nodedb: NDB_E_LEVEL: the transaction of this coroutine was rolled back while it was suspended")
      t.equal(coroutine.status(co), "dead")
      n.later.__ = "end"
    end)
    t.equal(n.later.__, "end")
    t.equal(n.x:data(), 0)
    t.equal(n.early.__, nil)
  end
  ndb.tp_limits {seconds = 60}
end

-- The same holds for a coroutine that was closed (Lua 5.4) or died.
function T.closed_coroutine(ndb, t)
  local n = ndb.node("^t")
  if coroutine.close then
    local co = suspended(ndb, "x")
    coroutine.close(co)
    n.a.__ = 1
    ndb.sync()
    t.equal(n.x:data(), 0)
    t.equal(t.other("print(ndb.get('^t', 'a'))"), "1\n")
  end
  local co = coroutine.create(function() ndb.tp(function() n.b.__ = 1 error("died") end) end)
  t.equal(coroutine.resume(co), false)
  n.c.__ = 1
  ndb.sync()
  t.equal(n.b.__, nil)
end

-- The module yottadb shares the transactions.
function T.both_modules(ndb, t)
  local ydb = require "yottadb"
  local n = ndb.node("^t")
  ndb.tp(function()
    ydb.set("^t", "a", 1)
    t.fails("a transaction is open", ydb.sync)
    t.fails("ROLLBACK", ydb.tp, function()
      n.b.__ = 1
      ndb.trollback()
    end)
  end)
  t.equal(n.a.__, 1)
  t.equal(n.b.__, nil)
  if not yields then return end
  local co = suspended(ydb, "y")
  t.fails("a suspended coroutine", ndb.get, "^t")
  assert(coroutine.resume(co))
  abandoned(ydb, "y")
  n.c.__ = 1
  t.equal(ydb.get("^t", "c"), "1")
end

return T
