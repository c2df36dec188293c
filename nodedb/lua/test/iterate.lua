-- Iteration: order, bounds, changes while it runs.
local T = {}

local function fill(n)
  for _, s in ipairs {"", -1.5, -1, -0.5, 0, 0.000001, 0.5, 1, 2, 10, 1e15, " ", "+1", "-0", "0.5", "01", "1.0",
    "1e3", "A", "a", "\195\169", "\255"} do
    n[s].__ = s
  end
end

local ORDER = {"", -1.5, -1, -0.5, 0, 0.000001, 0.5, 1, 2, 10, 1e15, " ", "+1", "-0", "0.5", "01", "1.0", "1e3",
  "A", "a", "\195\169", "\255"}

local function texts(list)
  local out = {}
  for i, v in ipairs(list) do
    out[i] = (type(v) == "number" and "number " .. ("%.14g"):format(v) or "string " .. v)
  end
  return out
end

local function reversed(list)
  local out = {}
  for i = #list, 1, -1 do out[#out + 1] = list[i] end
  return out
end

function T.order(ndb, t)
  for _, name in ipairs {"^s", "s"} do
    local n = ndb.node(name)
    fill(n)
    t.list(texts(t.collect(n:subscripts())), texts(ORDER), name)
    t.list(texts(t.collect(n:subscripts(true))), texts(reversed(ORDER)), name .. " reverse")
    ndb.sync()
    t.list(texts(t.collect(n:subscripts())), texts(ORDER), name .. " committed")
    t.list(texts(t.collect(n:subscripts({reverse = true}))), texts(reversed(ORDER)), name .. " committed, reverse")
  end
end

function T.pairs(ndb, t)
  local n = ndb.node("^p")
  n.a.__ = 1
  n.b.x.__ = 2
  n.c.__ = false
  local seen = {}
  for child, value, subscript in n:pairs() do
    t.equal(child, n[subscript])
    seen[#seen + 1] = tostring(child) .. "=" .. tostring(value)
  end
  t.list(seen, {'^p("a")=1', '^p("b")=nil', '^p("c")=false'})
  seen = {}
  for subscript, value in n:values() do seen[#seen + 1] = subscript .. "=" .. tostring(value) end
  t.list(seen, {"a=1", "b=nil", "c=false"})
  if _VERSION ~= "Lua 5.1" then
    local count = 0
    for child in pairs(n) do
      count = count + 1
      t.equal(ndb.isnode(child), true)
    end
    t.equal(count, 3)
  end
  -- Results of an iteration stay valid.
  local kept = {}
  for child in n:pairs() do kept[#kept + 1] = child end
  t.equal(kept[1].__, 1)
  t.equal(kept[2].x.__, 2)
end

function T.walk(ndb, t)
  local n = ndb.node("^w")
  n:settree {__ = 0, a = {__ = 1, b = 2}, c = {d = {e = 3}}, __proto = nil}
  n("__x", 1).__ = 4
  local seen = {}
  for node, value in n:walk() do seen[#seen + 1] = tostring(node) .. "=" .. value end
  t.list(seen, {"^w=0", '^w("__x",1)=4', '^w("a")=1', '^w("a","b")=2', '^w("c","d","e")=3'})
  seen = {}
  for node, value in n:walk {reverse = true, limit = 2} do seen[#seen + 1] = tostring(node) .. "=" .. value end
  t.list(seen, {'^w("c","d","e")=3', '^w("a","b")=2'})
  seen = {}
  for node in n.a:walk() do
    t.equal(node == n.a or node == n.a.b, true)
    seen[#seen + 1] = tostring(node)
  end
  t.list(seen, {'^w("a")', '^w("a","b")'})
end

-- The last nodes of the file, read from its pages, followed by a pending node.
function T.pending_behind_the_last_page(ndb, t)
  local n = ndb.node("^a")
  for i = 1, 10 do n[i].__ = i end
  ndb.sync()
  ndb.node("^b").__ = 1
  for _ = 1, 2 do
    t.list(t.collect(n:subscripts()), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
    local sum = 0
    for _, value in n:values() do sum = sum + value end
    t.equal(sum, 55)
    n[3].__ = 3
  end
end

function T.bounds(ndb, t)
  local n = ndb.node("^b")
  for i = 1, 1000 do n[i].__ = i end
  t.list(t.collect(n:subscripts {from = 998}), {998, 999, 1000})
  t.list(t.collect(n:subscripts {to = 3}), {1, 2, 3})
  t.list(t.collect(n:subscripts {from = 4, to = 6}), {4, 5, 6})
  t.list(t.collect(n:subscripts {from = 6, to = 4, reverse = true}), {6, 5, 4})
  t.list(t.collect(n:subscripts {from = 999.5}), {1000})
  t.list(t.collect(n:subscripts {limit = 2}), {1, 2})
  t.list(t.collect(n:subscripts {limit = 0}), {})
  t.list(t.collect(n:subscripts {from = "a"}), {})
  t.fails("unknown option", function() n:subscripts {form = 1} end)
  t.fails("limit must be", function() n:subscripts {limit = -1} end)
  t.fails("must be true (reverse) or a table", function() n:subscripts("x") end)
end

function T.many(ndb, t)
  if t.collecting then return end -- it measures memory
  local n = ndb.node("^many")
  ndb.tp("BATCH", function()
    for i = 1, 5000 do n[i].__ = i end
    for i = 1, 50 do
      for k = 1, 40 do n[i * 100].below[k].__ = k end
    end
  end)
  for _ = 1, 2 do
    local want = 1
    for s, v in n:subscripts() do
      t.equal(s, want)
      t.equal(v, nil)
      want = want + 1
    end
    t.equal(want, 5001)
    for s in n:subscripts(true) do
      want = want - 1
      t.equal(s, want)
    end
    t.equal(want, 1)
    want = 1
    for _, value, s in n:pairs() do
      t.equal(s, want)
      t.equal(value, want)
      want = want + 1
    end
    t.equal(n:count(), 7000)
    ndb.sync()
  end
end

function T.changes_are_seen(ndb, t)
  for _, name in ipairs {"^c", "c"} do
    local n = ndb.node(name)
    for i = 1, 10 do n[i].__ = i end
    local seen = {}
    for s in n:subscripts() do
      seen[#seen + 1] = s
      if s == 3 then
        n[4]:kill()
        n[5.5].__ = 1
        n[2.5].__ = 1 -- before the current position: not seen
      end
      if s == 10 then n[11].__ = 1 end
      if s == 11 then n[12].__ = 1 end
    end
    t.list(seen, {1, 2, 3, 5, 5.5, 6, 7, 8, 9, 10, 11, 12}, name)
    -- Kill every node as it is returned.
    for s in n:subscripts() do n[s]:kill() end
    t.equal(n:data(), 0, name)
  end
end

function T.an_iterator_outlives_its_transaction(ndb, t)
  local n = ndb.node("^t")
  for i = 1, 600 do n[i].__ = i end
  local following
  ndb.tp(function()
    following = n:subscripts()
    t.equal(following(), 1)
  end)
  t.equal(following(), 2)
  pcall(ndb.tp, function()
    n[2.5].__ = 1
    t.equal(following() == 2.5, true)
    ndb.trollback()
  end)
  t.equal(following(), 3)
  for i = 4, 600 do t.equal(following(), i) end
  t.equal(following(), nil)
  t.equal(following(), nil)
end

function T.many_open_iterators(ndb, t)
  if t.collecting then return end -- it measures memory
  local n = ndb.node("^o")
  for i = 1, 10 do n[i].__ = i end
  ndb.sync()
  for _ = 1, 20000 do n:subscripts()() end
  local kept = {}
  for i = 1, 500 do
    kept[i] = n:subscripts()
    t.equal(kept[i](), 1)
  end
  for i = 1, 500 do t.equal(kept[i](), 2) end
  local open = n:subscripts()
  t.equal(open(), 1)
  ndb.close() -- ends the iterations
  t.equal(open(), nil)
  t.equal(kept[1](), nil)
  ndb.open(t.store)
  t.equal(n[1].__, 1)
end

function T.order_functions(ndb, t)
  local n = ndb.node("^f")
  n.a.__ = 1
  n.b.x.__ = 2
  n.c.__ = 3
  t.equal(ndb.subscript_next("^f", ""), "a")
  t.equal(ndb.subscript_next("^f", "a"), "b")
  t.equal(ndb.subscript_next("^f", {"b", ""}), "x")
  t.equal(ndb.subscript_next("^f", "c"), nil)
  t.equal(ndb.subscript_next("^f", "aa"), "b")
  t.equal(ndb.subscript_previous("^f", ""), "c")
  t.equal(ndb.subscript_previous("^f", "b"), "a")
  t.equal(ndb.subscript_previous("^f", "a"), nil)
  t.list(t.collect(ndb.subscripts("^f", "")), {"a", "b", "c"})
  t.list(t.collect(ndb.subscripts("^f", "a")), {"b", "c"})
  t.list(t.collect(ndb.subscripts("^f", "c")), {})
  t.list(t.collect(ndb.subscripts("^f", "", true)), {"c", "b", "a"})
  t.list(t.collect(ndb.subscripts("^f", {"c"}, true)), {"b", "a"})
  t.list(ndb.node_next("^f"), {"a"})
  t.list(ndb.node_next("^f", "a"), {"b", "x"})
  t.list(ndb.node_next("^f", {"b", "x"}), {"c"})
  t.equal(ndb.node_next("^f", "c"), nil)
  t.list(ndb.node_previous("^f", "c"), {"b", "x"})
  t.equal(ndb.node_previous("^f", "a"), nil)
  ndb.set("^g", 1)
  t.equal(ndb.subscript_next("^f"), "^g")
  t.equal(ndb.subscript_previous("^g"), "^f")
  t.list(t.collect(ndb.subscripts("^f")), {"^g"})
  t.list(t.collect(ndb.names()), {"^f", "^g"})
  t.list(t.collect(ndb.names(true)), {"^g", "^f"})
end

return T
