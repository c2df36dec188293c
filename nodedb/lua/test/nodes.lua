-- Nodes: paths, values, methods, identity, and attempts of scripts to break them.
local T = {}

function T.values_keep_their_type(ndb, t)
  local n = ndb.node("^v")
  for i, v in ipairs {5, -3, 0.5, 1e15, 2^53, "text", "", "5", "a\0b", ("x"):rep(100000), true, false} do
    n[i].__ = v
    local got = n[i].__
    t.equal(type(got), type(v))
    t.equal(got == v, true, tostring(v))
    t.equal(ndb.get("^v", i) == v, true)
  end
  t.equal(n.missing.__, nil)
  t.equal(n.missing:get("default"), "default")
  n[1].__ = nil
  t.equal(n[1].__, nil)
  t.equal(n[1]:data(), 0)
end

function T.integers(ndb, t)
  local n = ndb.node("^i")
  n.x.__ = 7
  if math.type then t.equal(math.type(n.x.__), "integer") end
  n.x.__ = 7.0
  t.equal(tostring(n.x.__), "7")
  if not math.type then return end
  local big = math.tointeger("123456789012345678")
  n.x.__ = big
  t.equal(n.x.__, big)
  n[big].__ = 1
  t.equal(n[big], n["123456789012345678"])
  t.equal(n[big]:name(), big)
  n.x.__ = math.maxinteger -- 19 digits: too many for M's numbers
  t.equal(n.x.__, "9223372036854775807")
end

function T.values_that_are_refused(ndb, t)
  local n = ndb.node("^v")
  t.fails("finite", function() n.x.__ = 0 / 0 end)
  t.fails("finite", function() n.x.__ = 1 / 0 end)
  t.fails("got a table", function() n.x.__ = {} end)
  t.fails("got a function", function() n.x:set(print) end)
  t.equal(n.x:data(), 0)
end

function T.paths(ndb, t)
  local n = ndb.node("^p")
  local a = n.a.b[3]
  t.equal(a, n("a", "b", 3))
  t.equal(a, n({"a", "b"}, 3))
  t.equal(a, n({"a", "b", 3}))
  t.equal(a, ndb.node("^p", "a", "b", 3))
  t.equal(a, ndb.node("^p", {"a", "b", 3}))
  t.equal(a, ndb.node(n, "a").b[3])
  t.equal(n(), n)
  t.equal(tostring(a), '^p("a","b",3)')
  t.equal(a:name(), 3)
  t.equal(n:name(), "^p")
  t.equal(a:varname(), "^p")
  t.equal(a:depth(), 3)
  t.equal(n:depth(), 0)
  t.list(a:subsarray(), {"a", "b", 3})
  t.equal(ndb.isnode(a), true)
  t.equal(ndb.isnode({}), false)
  t.equal(ndb.isnode(io.stdout), false)
  t.equal(ndb.isnode(nil), false)
  t.equal(a:ismutable(), false)
end

function T.number_subscripts(ndb, t)
  local n = ndb.node("^n")
  t.equal(n[3], n["3"])
  t.equal(n[3], n[6 / 2])
  t.equal(n[3], n(3.0))
  t.equal(n["3.0"] == n[3], false)
  t.equal(n["03"] == n[3], false)
  t.equal(n[0.5], n[".5"])
  t.equal(n["0.5"] == n[0.5], false)
  t.equal(n[-0.5]:name(), -0.5)
  t.equal(n[0.1]:name(), 0.1)
  t.equal(n[2^53]:name() == 2^53, true)
  t.equal(n[1e15]:name() == 1e15, true)
  t.equal(n["1e15"]:name(), "1e15")
  t.equal(n[-0.0], n[0])
  -- Integers beyond 2^53 are returned as strings of their digits.
  t.equal(n[1e20], n["100000000000000000000"])
  t.equal(n[1e20]:name(), "100000000000000000000")
  t.equal(tostring(n[0.1]), "^n(.1)")
  t.fails("finite", function() return n[0 / 0] end)
  t.fails("finite", function() return n[1 / 0] end)
end

function T.subscripts_that_are_refused(ndb, t)
  local n = ndb.node("^n")
  t.fails("got nil", function() return n("a", nil, "b") end)
  t.fails("got a boolean", function() return n[true] end)
  t.fails("got a function", function() return n[print] end)
  t.fails("node cannot be a subscript", function() return n[n] end)
  t.fails("invalid name", function() return ndb.node("bad name") end)
  t.fails("invalid name", function() return ndb.node("") end)
  t.fails("must be a name or a node", function() return ndb.node(nil) end)
  t.fails("must be a name or a node", function() return ndb.node(5) end)
  local deep = n
  for i = 1, 31 do deep = deep[i] end
  t.fails("31", function() return deep[32] end)
  t.fails("NDB_E_KEY", function() return n[("x"):rep(2000)] end)
  t.equal(n[("x"):rep(1000)]:depth(), 1)
  local length = 2000
  while not pcall(function() return n[("x"):rep(length)] end) do length = length - 1 end
  t.fails("shorten its subscripts", ndb.set, n[("x"):rep(length)], "child", 1)
end

function T.assignment_names_the_field(ndb, t)
  local n = ndb.node("^a")
  t.fails(".x.__ = 5", function() n.x = 5 end)
  n.x.__ = 1 -- again after it was read
  t.fails(".x.__ = 5", function() n.x = 5 end)
  t.fails("__ = nil", function() n.x = nil end)
  t.fails("[3].__ = 5", function() n[3] = 5 end)
  t.fails(".__get.__ = 5", function() n.__get = 5 end)
  t.equal(n.x.__, 1)
end

function T.methods_are_subscripts_too(ndb, t)
  local n = ndb.node("^m")
  n.get.__ = "a value"
  n.set.__ = "another"
  t.equal(n.get.__, "a value")
  t.equal(n.get:get(), "a value")
  t.equal(n.get:__get(), "a value")
  t.equal(n:get(), nil)
  n:set("root")
  t.equal(n:get(), "root")
  t.equal(n.set.__, "another")
  t.list(t.collect(n:subscripts()), {"get", "set"})
end

function T.names_that_begin_with_two_underscores(ndb, t)
  local n = ndb.node("^u")
  t.fails("there is no method nosuch", function() return n.__nosuch end)
  local child = n("__get")
  child.__ = 5
  t.equal(child, n("__get"))
  t.equal(n:__get(), nil)
  t.equal(child.x:depth(), 2)
  t.equal(tostring(child), '^u("__get")')
  for c, v, s in n:pairs() do
    t.equal(c, child)
    t.equal(v, 5)
    t.equal(s, "__get")
  end
  t.fails("there is no method", function() return n:nosuch() end)
  t.fails("must be a node", n.__get, "x")
  t.fails("must be a node", n.__get)
  t.fails("the node itself", function() return n.x.get(n) end)
end

function T.arithmetic_increments(ndb, t)
  local n = ndb.node("^c")
  t.equal(n:incr(), 1)
  t.equal(n:incr(2), 3)
  t.equal(n:incr(-0.5) == 2.5, true)
  t.equal(n:incr("1.5 apples"), 4)
  for _ = 1, 3 do n.tenth:incr(0.1) end
  t.equal(n.tenth.__ == 0.3, true)
  t.equal(n + 1, n)
  t.equal(n.__, 5)
  t.equal(n - 2, n)
  t.equal(n.__, 3)
  t.fails("node + number", function() return 1 + n end)
  n.text.__ = "3 apples"
  t.equal(n.text:incr(2), 5)
end

function T.data_and_kill(ndb, t)
  local n = ndb.node("^d")
  t.equal(n:data(), 0)
  n.x.y.__ = 1
  t.equal(n:data(), 10)
  t.equal(n.x:data(), 10)
  t.equal(n.x.y:data(), 1)
  n.x.__ = 2
  t.equal(n.x:data(), 11)
  t.equal(n.x:has_value(), true)
  t.equal(n.x:has_tree(), true)
  t.equal(n.x.y:has_tree(), false)
  t.equal(n:has_value(), false)
  t.equal(n:count(), 2)
  n.x.__ = nil
  t.equal(n.x:data(), 10)
  n:kill()
  t.equal(n:data(), 0)
  t.equal(n.x.y.__, nil)
end

function T.conditional_sets(ndb, t)
  local n = ndb.node("^k")
  t.equal(n:set_new(1), true)
  t.equal(n:set_new(2), false)
  t.equal(n:compare_and_set(2, 3), false)
  t.equal(n:compare_and_set(1, "x"), true)
  t.equal(n:compare_and_set(nil, 3), false)
  t.equal(n.other:compare_and_set(nil, 3), true)
  t.equal(n.__, "x")
end

function T.expiry(ndb, t)
  local n = ndb.node("^e")
  t.equal(n:expire(10), false)
  n.__ = 1
  t.equal(n:ttl(), nil)
  t.equal(n:expire(10), true)
  local left = n:ttl()
  t.equal(left > 5 and left <= 10, true)
  n:expire()
  t.equal(n:ttl(), nil)
  n:expire(0.02)
  local deadline = os.time() + 5
  while n.__ ~= nil and os.time() < deadline do t.other("") end
  t.equal(n.__, nil)
  t.fails("seconds", function() n:expire("x") end)
  t.fails("seconds", function() n:expire(-1) end)
end

function T.merge(ndb, t)
  local a, b = ndb.node("^a"), ndb.node("^b")
  b:settree {__ = 1, x = 2, y = {z = 3}}
  a.keep.__ = "kept"
  a.to:merge(b)
  t.equal(a.to.__, 1)
  t.equal(a.to.y.z.__, 3)
  t.equal(a.keep.__, "kept")
  local e = t.fails("NDB_E_MERGE", function() b.x:merge(b) end)
  t.equal(ndb.get_error_code(e), ndb.NDB_E_MERGE)
  t.fails("must be the node", function() a:merge("^b") end)
  ndb.merge("copy", b) -- to a tree in memory
  t.equal(ndb.get("copy", "y", "z"), 3)
end

function T.trees_in_memory(ndb, t)
  local n = ndb.node("scratch")
  n.x[1].__ = 5
  t.equal(n.x[1].__, 5)
  t.equal(n:incr(), 1)
  t.list(t.collect(n:subscripts()), {"x"})
  n:kill()
  t.equal(n:data(), 0)
end

function T.a_path_is_one_object(ndb, t)
  local n = ndb.node("^o")
  local kept = {}
  for i = 1, 1000 do kept[i] = n.a[i].b end
  collectgarbage()
  collectgarbage()
  local same = 0
  for i = 1, 1000 do
    if rawequal(kept[i], n.a[i].b) then same = same + 1 end
  end
  t.equal(same, 1000)
  t.equal(rawequal(ndb.node("^o"), n), true)
  local weak = setmetatable({n.gone}, {__mode = "v"})
  collectgarbage()
  collectgarbage()
  t.equal(weak[1], nil, "a node that nobody holds")
end

function T.nothing_leaks(ndb, t)
  if t.collecting then return end -- it measures memory
  local n = ndb.node("^l")
  local _ = n.held
  collectgarbage()
  collectgarbage()
  local before, peak = collectgarbage("count"), 0
  for i = 1, 400000 do -- each would leak at least 16 bytes, a table slot: 6 MB
    local _ = n[i]
    if i % 4096 == 0 then
      local now = collectgarbage("count")
      if now > peak then peak = now end
    end
  end
  t.equal(peak - before < 2048, true, "the heap grew by " .. peak - before .. " KB")
end

function T.hostile(ndb, t)
  local n = ndb.node("^h")
  n.x.__ = 1
  n[1].__ = "one"
  for _, f in ipairs {rawset, rawget, next, table.insert, table.remove, table.sort, table.concat, ipairs} do
    for _, arguments in ipairs {{n}, {n, "x", 2}, {n, 1}} do
      pcall(f, unpack and unpack(arguments) or table.unpack(arguments))
    end
  end
  t.fails("", rawset, n, "x", 2)
  t.fails("", rawget, n, "x")
  t.fails("", next, n)
  t.fails("", setmetatable, n, {})
  t.fails("", table.insert, n, 5)
  t.fails("", function() return #n end)
  t.fails("", function() return n < n end)
  t.fails("", function() return n .. "" end)
  t.equal(type(getmetatable(n)), "string")
  t.equal(n.x.__, 1)
  t.equal(n[1].__, "one")
  -- Values that only look like nodes are rejected.
  local asked = {}
  local fake = setmetatable({}, {__index = function(_, k) asked[#asked + 1] = k return "x" end,
    __metatable = getmetatable(n)})
  pcall(ndb.get, fake)
  pcall(ndb.node, fake)
  pcall(ndb.lock, {fake})
  pcall(n.__get, fake)
  pcall(n.__merge, n, fake)
  pcall(function() return n(fake) end)
  for _, k in ipairs(asked) do t.equal(type(k) == "table" or type(k) == "userdata", false, "a private key") end
end

function T.inherit(ndb, t)
  local function concat(a, b) return tostring(a) .. tostring(b) end
  local person, class = ndb.inherit(ndb.node, {__index = {}, __concat = concat})
  function class.greet(self, greeting) return greeting .. " " .. self.first.__ end
  local p = person("^person", 3)
  p.first.__ = "Ada"
  t.equal(p:greet("Hello"), "Hello Ada")
  t.equal(p.first.__, "Ada")
  t.equal(p.friend:depth(), 2)
  p.friend.first.__ = "Grace"
  t.equal(p.friend:greet("Hi"), "Hi Grace")
  t.equal(p .. "!", "^person(3)!")
  t.equal(ndb.isnode(p), true)
  t.equal(person("^person", 3), p)
  t.equal(ndb.node("^person", 3) == p, false)
  t.equal(person(ndb.node("^person", 3)), p)
  p("greet").__ = "a subnode of that name"
  t.equal(p:greet("Hello"), "Hello Ada")
  t.equal(ndb.get("^person", 3, "greet"), "a subnode of that name")
  t.fails("__index", ndb.inherit, ndb.node, {__index = print})
  t.fails("__newindex", ndb.inherit, ndb.node, {__newindex = print})
end

function T.functions(ndb, t)
  ndb.set("^f", 1)
  ndb.set("^f", "a", 2)
  ndb.set("^f", {"a", 5}, 3)
  ndb.set("^f", {"a"}, "b", 4)
  t.equal(ndb.get("^f"), 1)
  t.equal(ndb.get("^f", "a"), 2)
  t.equal(ndb.get("^f", {"a", 5}), 3)
  t.equal(ndb.get("^f", "a", "b"), 4)
  t.equal(ndb.get(ndb.node("^f").a, 5), 3)
  t.equal(ndb.data("^f", "a"), 11)
  t.equal(ndb.count("^f"), 4)
  t.equal(ndb.incr("^f", "a", 10), 12)
  ndb.set("^f", "a", nil)
  t.equal(ndb.data("^f", "a"), 10)
  ndb.kill("^f", "a")
  t.equal(ndb.count("^f"), 1)
  t.fails("set: the last argument, the value, is missing", ndb.set, "^f")
  t.fails("get: argument 1", ndb.get)
  t.fails("get: argument 1", ndb.get, {})
  t.list(t.collect(ndb.names()), {"^f"})
end

function T.errors_have_codes(ndb, t)
  local e = t.fails("NDB_E_ARGUMENT", ndb.get, "bad name")
  t.equal(ndb.get_error_code(e), ndb.NDB_E_ARGUMENT)
  t.equal(ndb.NDB_E_ARGUMENT, -1)
  t.equal(ndb.NDB_E_TIMEOUT, -6)
  t.equal(ndb.get_error_code("something else"), nil)
  t.equal(ndb.get_error_code({}), nil)
  t.equal(ndb.get_error_code("script.lua:3: " .. e), -1)
end

function T.open_and_close(ndb, t)
  ndb.node("^x").__ = 1
  t.fails("already open", ndb.open, t.store)
  ndb.close()
  local n = ndb.node("^x")
  ndb.open(t.store)
  t.equal(n.__, 1, "a node outlives the store")
  ndb.close()
  t.fails("unknown option", ndb.open, t.store, {flush = 1})
  t.fails("must be a number", ndb.open, t.store, {flush_ms = "x"})
  t.fails("must be the path", ndb.open)
  ndb.node("local").__ = 1
  t.fails("used without a store", ndb.open, t.store)
  ndb.close()
  ndb.open(t.store, {flush_ms = 5})
  t.equal(ndb.node("local").__, nil)
  ndb.sync()
  t.equal(ndb.stat().nodes, 1)
end

function T.nothing_is_lost_at_exit(ndb, t)
  t.other("ndb.node('^x').__ = 1 os.exit(0)")
  t.other("ndb.node('^y').__ = 1")
  t.equal(ndb.get("^x"), 1)
  t.equal(ndb.get("^y"), 1)
end

-- Numbers that are not integers, or not floats, in Lua.
function T.numbers_at_the_edge(ndb, t)
  local n = ndb.node("^edge")
  for _, number in ipairs {0 / 0, -(0 / 0), 1 / 0, -1 / 0} do
    for _, f in ipairs {
      function() return n[number] end, function() return n(number) end, function() n.__ = number end,
      function() n:incr(number) end,
      function() return n + number end, function() return n - number end,
      function() return n:compare_and_set(number, 1) end,
      function() ndb.set("^edge", number, 1) end, function() ndb.get("^edge", number) end,
      function() n:settree {[1] = number} end,
      function() n:subscripts {from = number}() end,
    } do
      t.fails("NDB_E_ARGUMENT", f)
    end
  end
  t.equal(n:data(), 0)
  local nan = 0 / 0
  for _, f in ipairs {
    function() n:expire(nan) end, function() n:lock_incr(nan) end, function() ndb.lock({n}, nan) end,
    function() n:dump(nan) end,
    function() n:dump(-1) end, function() n:dump(1.5) end, function() n:gettree(nan) end,
    function() n:subscripts {limit = nan} end,
    function() n:subscripts {limit = -1} end, function() n:subscripts {limit = 0.5} end,
  } do
    t.fails("NDB_E_ARGUMENT", f)
  end
  for i = 1, 3 do n.list[i].__ = i end
  for _, limit in ipairs {1 / 0, 1e300, 2 ^ 64, 2 ^ 63, 2 ^ 62} do
    t.equal(#t.collect(n.list:subscripts {limit = limit}), 3)
    t.equal(select(2, n.list:dump(limit):gsub("\n", "")), 2)
    t.equal(n.list:gettree(limit)[3], 3)
    t.equal(n.list[1]:expire(limit), true)
    t.equal(n.list[1]:ttl(), nil)
    n.list:lock_incr(limit)
    n.list:lock_decr()
  end
  -- Equal keys of a Lua table are the same node.
  for _, number in ipairs {2 ^ 53, 2 ^ 60, 2 ^ 62, -2 ^ 63, 1e18, 1e17, 3.0} do
    n[number].__ = number
    t.equal(n[number].__ == number, true, number)
    local whole = math.tointeger and math.tointeger(number)
    if whole then
      t.equal(n[whole], n[number])
      t.equal(ndb.get("^edge", whole) == number, true, whole)
      t.equal(ndb.get("^edge", number) == number, true, number)
    end
  end
  if math.mininteger then
    t.equal((n.least - math.mininteger):get() > 0, true)
  end
end

return T
