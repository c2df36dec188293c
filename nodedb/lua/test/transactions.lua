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
  ndb.tp(function() -- from within an inner one, everything
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

return T
