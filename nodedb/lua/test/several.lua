-- Operations on several nodes: ranges, bounds of walks, lists of nodes, lifetimes, views.
local T = {}

-- some_tree creates the nodes w, w(i) and w(i,"x") for i from 1 to 5, and w(2.5).
local function some_tree(ndb, name)
  local n = ndb.node(name)
  n.__ = 0
  for i = 1, 5 do
    n[i].__ = i
    n[i].x.__ = i
  end
  n[2.5].__ = 2.5
  return n
end

local function walked(n, options)
  local list = {}
  for node in n:walk(options) do list[#list + 1] = tostring(node) end
  return table.concat(list, " ")
end

function T.kill_range(ndb, t)
  for i, case in ipairs {
    {nil, nil, 1}, {2, 3, 7}, {2, 2, 10}, {2.1, 2.9, 11}, {nil, 2, 8}, {4, nil, 8}, {3, 2, 12}, {"a", nil, 12},
  } do
    for _, name in ipairs {"^w", "w"} do
      local n = some_tree(ndb, name .. i)
      n:kill_range(case[1], case[2])
      t.equal(n:count(), case[3], name .. i)
      t.equal(n.__, 0)
    end
  end
  local n = some_tree(ndb, "^undo")
  t.fails("undo", ndb.tp, function()
    n:kill_range(1, 3)
    t.equal(n[1].x.__, nil)
    n[2].__ = "again"
    error("undo")
  end)
  t.equal(n:count(), 12)
  t.fails("a subscript must be a string or a number", n.kill_range, n, true)
  for i = 1, 25000 do ndb.set("^many", i, i) end
  ndb.node("^many"):kill_range(11, 24990)
  t.equal(ndb.count("^many"), 20)
end

function T.walk_bounds(ndb, t)
  for _, name in ipairs {"^w", "w"} do
    local n = some_tree(ndb, name)
    local function check(options, want) t.equal(walked(n, options), (want:gsub("w", name))) end
    check({to = 1}, 'w w(1) w(1,"x")')
    check({from = 2, to = 2}, 'w(2) w(2,"x")')
    check({from = 2, to = 3}, 'w(2) w(2,"x") w(2.5) w(3) w(3,"x")')
    check({from = 2.1, to = 2.9}, 'w(2.5)')
    check({from = n[4].x}, 'w(4,"x") w(5) w(5,"x")')
    check({from = 5, limit = 1}, 'w(5)')
    check({from = 2, to = 1, reverse = true}, 'w(2,"x") w(2) w(1,"x") w(1)')
    check({from = 1, reverse = true}, 'w(1,"x") w(1) w')
    check({from = 4, to = 2}, "")
    t.fails("is not below", n.walk, n, {from = ndb.node("^other")})
    t.fails("a subscript must be a string or a number", n.walk, n, {to = true})
  end
end

function T.lists(ndb, t)
  local n = ndb.node("^m")
  ndb.set_all({n[1], "mine", {"^m", 2}, n.x}, {1, "two", true, ("x"):rep(100000)})
  local values = ndb.get_all {n[1], {"mine"}, n[2], n[3], n.x}
  t.equal(values[1], 1)
  t.equal(values[2], "two")
  t.equal(values[3], true)
  t.equal(values[4], nil)
  t.equal(#values[5], 100000)
  ndb.tp(function()
    ndb.set_all({n[1], n[3]}, {5, 6})
    t.list(ndb.get_all {n[1], n[3]}, {5, 6})
  end)
  t.fails("a value must be", ndb.set_all, {n[1], n[2]}, {7, {}})
  t.fails("node 2 has no value", ndb.set_all, {n[1], n[2]}, {7})
  t.fails("must be a list", ndb.set_all, n, {7})
  t.fails("must be a list", ndb.get_all, "^m")
  t.fails("must be a list of values", ndb.set_all, {n[1]})
  t.equal(n[1].__, 5)
  t.equal(#ndb.get_all {}, 0)
end

function T.lists_are_set_whole(ndb, t)
  ndb.close()
  ndb.open(t.store, {transaction_bytes = 1000000})
  local n, big = ndb.node("^m"), ("x"):rep(700000)
  ndb.set_all({n[1], "mine"}, {1, 2})
  t.fails("NDB_E_FULL", ndb.set_all, {n[1], "mine", n[2], n[3]}, {9, 9, big, big})
  t.list(ndb.get_all {n[1], "mine"}, {1, 2})
  ndb.tp(function()
    n[1].__ = 3
    t.fails("NDB_E_FULL", ndb.set_all, {n[1], "mine", n[2], n[3]}, {9, 9, big, big})
    t.list(ndb.get_all {n[1], "mine"}, {3, 2})
  end)
  t.list(ndb.get_all {n[1], "mine"}, {3, 2})
end

function T.lifetimes(ndb, t)
  for _, name in ipairs {"^e", "e"} do
    local n = some_tree(ndb, name)
    t.equal(n:expire_at(os.time() + 3600), true)
    t.equal(n:ttl() > 3500 and n:ttl() <= 3600, true)
    t.equal(n:expire_at(), true)
    t.equal(n:ttl(), nil)
    t.equal(n.none:expire_at(1e9), false)
    for _, past in ipairs {0, -5, 1, os.time() - 1} do
      n.__ = 1
      t.equal(n:expire_at(past), true)
      t.equal(n.__, nil, "expired at " .. past)
    end
    n.__ = 1
    t.equal(n:expire(0), true)
    t.equal(n.__, nil, "expired at once")
    t.equal(n:expire(0), false)
    n.__ = 1
    n[2]:expire_tree(1000)
    n[2].new.__ = 1
    t.equal(n[2].x:ttl() > 900, true)
    t.equal(n[2].new:ttl(), nil)
    t.equal(n[2.5]:ttl(), nil)
    n[2]:expire_tree()
    t.equal(n[2].x:ttl(), nil)
    n[2]:expire_tree(0)
    t.equal(n[2]:data(), 0)
    t.equal(n:count(), 10)
    t.fails("seconds", n.expire_tree, n, -1)
    t.fails("seconds since 1970", n.expire_at, n, "x")
  end
end

function T.no_time_passes_in_a_transaction(ndb, t)
  local n, m = ndb.node("^e"), ndb.node("e")
  ndb.tp(function()
    n.__, m.__ = 1, 1
    n:expire(0.01)
    m:expire(0.01)
    local start = os.clock()
    while os.clock() - start < 0.03 do end
    t.equal(n.__, 1)
    t.equal(m.__, 1)
    t.equal(n:ttl(), 0.01)
  end)
  t.equal(n.__, nil)
  t.equal(m.__, nil)
end

function T.view(ndb, t)
  local n = ndb.node("^v")
  n.__ = 1
  t.equal(select("#", ndb.view(function() return nil, nil end)), 2)
  t.equal(ndb.view(function(x, y) return n.__ + x + y end, 2, 3), 6)
  ndb.view(function()
    t.equal(t.other("ndb.set('^v', 'other', 1) ndb.set('^v', 2)"), "")
    t.equal(n.__, 1)
    t.equal(n.other.__, nil)
    ndb.node("mine").__ = 5
    t.fails("is read-only", ndb.set, "^v", 3)
    t.fails("is read-only", n.kill, n)
    t.fails("is read-only", n.kill_range, n)
    t.fails("is read-only", ndb.set_all, {n}, {3})
    t.fails("is read-only", ndb.tp, function() n.__ = 3 end)
    t.equal(ndb.tp(function() return n.__ end), 1)
  end)
  t.equal(ndb.get("mine"), 5)
  t.equal(n.__, 2)
  t.fails("my own", ndb.view, function() error("my own") end)
  t.fails("the function to run", ndb.view)
  ndb.tp(function()
    n.__ = 7
    t.equal(ndb.view(function() return n.__ end), 7)
    n.__ = 8
  end)
  t.equal(n.__, 8)
end

function T.read_only(ndb, t)
  ndb.set("^r", 1)
  ndb.close()
  ndb.open(t.store, {read_only = true})
  t.fails("read-only", ndb.set, "^r", 2)
  t.fails("read-only", ndb.tp, function() ndb.set("^r", 2) end)
  t.equal(ndb.get("^r"), 1)
end

return T
