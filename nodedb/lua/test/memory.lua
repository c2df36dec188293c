-- Text that C reads and that only the call keeps alive. With NODEDB_TEST_COLLECT=1, LuaJIT collects
-- it unless the module keeps it alive.
local T = {}

-- fresh returns a new text that nothing else refers to.
local number = 0
local function fresh(length)
  number = number + 1
  return ("%08d"):format(number) .. ("t"):rep((length or 0) - 8)
end

-- many calls f often enough for LuaJIT to compile it.
local function many(f)
  for i = 1, 70 do f(i) end
end

function T.bounds_of_an_iteration(ndb, t)
  local n = ndb.node("^m")
  for i = 1, 9 do n["x" .. i].__ = i end
  many(function(i)
    local low, high = "x" .. i % 5 + 1, "x" .. i % 5 + 3
    t.equal(#t.collect(n:subscripts {from = "x" .. i % 5 + 1, to = "x" .. i % 5 + 3}), 3, low .. " to " .. high)
    for subscript, value in n:values {from = "x" .. i % 5 + 1, to = "x" .. i % 5 + 1} do
      t.equal(subscript .. value, low .. i % 5 + 1)
    end
    local first = n:subscripts {from = ("%s\255"):format(low), limit = 1}()
    t.equal(first, "x" .. i % 5 + 2)
  end)
end

function T.values(ndb, t)
  local n = ndb.node("^m")
  many(function(i)
    local at = n[i % 7]
    at.__ = fresh(20 + i)
    local value = at.__
    t.equal(tonumber(value:sub(1, 8)), number)
    t.equal(#value, 20 + i)
    at:kill()
    t.equal(at:set_new(fresh(33)), true)
    t.equal(at:set_new(fresh(33)), false)
    t.equal(tonumber(at.__:sub(1, 8)), number - 1)
    local now = at.__
    t.equal(at:compare_and_set(now:sub(1, 10) .. now:sub(11), fresh(50)), true)
    t.equal(#at.__, 50)
    t.equal(at:compare_and_set(fresh(50), fresh(50)), false)
    at.__ = nil
    t.equal(at:incr(("%d"):format(i) .. ".5"), i + 0.5)
    ndb.set("^m", "child" .. i, fresh(30))
    t.equal(tonumber(ndb.get("^m", "child" .. i):sub(1, 8)), number)
    n:settree {["k" .. i] = fresh(44)}
    t.equal(tonumber(n["k" .. i].__:sub(1, 8)), number)
  end)
end

function T.text(ndb, t)
  many(function(i)
    local long = i * 60
    t.equal(ndb.str2zwr(fresh(long)), '"' .. ("%08d"):format(number) .. ("t"):rep(long - 8) .. '"')
    t.equal(ndb.zwr2str('"' .. fresh(long) .. '"'), ("%08d"):format(number) .. ("t"):rep(long - 8))
    t.equal(ndb.load('^l("' .. i .. '")="' .. fresh(long) .. '"'), 1)
    t.equal(ndb.get("^l", i), ("%08d"):format(number) .. ("t"):rep(long - 8))
  end)
  t.equal(#ndb.dump("^l", 100) > 70 * 71 * 30, true)
end

function T.paths(ndb, t)
  many(function(i)
    local n = ndb.node("^" .. ("p"):rep(i % 9 + 1), "a" .. i, {"b" .. i, i})
    n.__ = i
    t.list(n:subsarray(), {"a" .. i, "b" .. i, i})
    t.equal(tostring(n), ('^%s("a%d","b%d",%d)'):format(("p"):rep(i % 9 + 1), i, i, i))
    t.equal(ndb.subscript_next("^" .. ("p"):rep(i % 9 + 1), "a" .. i, "b"), "b" .. i)
    t.list(ndb.node_next("^" .. ("p"):rep(i % 9 + 1), "a" .. i), {"a" .. i, "b" .. i, i})
    ndb.tp({"local" .. i % 3}, function() ndb.set("local" .. i % 3, fresh()) end)
    ndb.lock {{"^l" .. i, "x" .. i}, "^m" .. i}
    n:lock_incr()
    n:lock_decr()
  end)
  ndb.lock()
end

return T
