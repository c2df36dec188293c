-- The module yottadb: every function, method, property, constant and error that lua-yottadb
-- documents, and each line of "What differs" in docs/howto/from-lua-yottadb-or-m.md.
local ydb = require "yottadb"
local T = {}

-- Values and nodes ------------------------------------------------------------------------

function T.get_and_set(_, t)
  t.equal(ydb.set("^s", "v"), "v")
  t.equal(ydb.get("^s"), "v")
  t.equal(ydb.set("^s", {"a", "b"}, 5), 5)
  t.equal(ydb.get("^s", {"a", "b"}), "5")
  t.equal(ydb.get("^s", "a", "b"), "5")
  t.equal(ydb.get("^s", {"a"}, "b"), "5")
  ydb.set("^s", "a", "c", "d", "deep")
  t.equal(ydb.get("^s", {"a", "c"}, "d"), "deep")
  t.equal(ydb.get("^s", "none"), nil)
  t.equal(ydb.get("^none"), nil)
  t.equal(ydb.set("^s", {"a", "b"}, nil), nil)
  t.equal(ydb.get("^s", "a", "b"), nil)
  ydb.set("memory", {"x"}, "a\0b")
  t.equal(ydb.get("memory", "x"), "a\0b")
  ydb.set("^s", "empty", "")
  t.equal(ydb.get("^s", "empty"), "")
  t.equal(ydb.get("^s", "empty", ""), nil)
end

function T.values_are_text(_, t)
  local n = ydb.node("^s")
  n.i.__ = 5
  n.f.__ = 0.5
  n.w.__ = 5.0
  n.big.__ = 2 ^ 53
  n.s.__ = "text"
  t.equal(n.i.__, "5")
  t.equal(n.i:get(), "5")
  t.equal(n.f.__, ".5")
  t.equal(n.w.__, "5")
  t.equal(n.big.__, "9007199254740992")
  t.equal(n.s.__, "text")
  t.equal(n.none.__, nil)
  t.equal(n.none:get(), nil)
  t.equal(n.none:get("default"), "default")
  n.i.__ = nil
  t.equal(n.i:data(), 0)
  n.i:set(7)
  t.equal(n.i:__get(), "7")
  n.i:set(nil)
  t.equal(n.i:has_value(), false)
end

function T.values_that_are_refused(_, t)
  local n = ydb.node("^s")
  for _, value in ipairs {true, {}, print, n} do
    t.fails("NDB_E_ARGUMENT", ydb.set, "^s", "x", value)
    t.fails("NDB_E_ARGUMENT", ydb.set, "^s", {"x"}, value)
    t.fails("NDB_E_ARGUMENT", function() n.x.__ = value end)
    t.fails("NDB_E_ARGUMENT", n.x.set, n.x, value)
    t.fails("NDB_E_ARGUMENT", n.x.set_new, n.x, value)
  end
  t.equal(n.x:data(), 0)
  t.fails("NDB_E_VALUE", ydb.set, "^s", "x", ("x"):rep(64 * 1024 * 1024 + 1))
  ydb.set("^s", "x", ("x"):rep(1024 * 1024 + 1)) -- longer than M allows
  t.equal(#ydb.get("^s", "x"), 1024 * 1024 + 1)
end

function T.names_that_are_refused(_, t)
  for _, name in ipairs {"", "^", "1a", "a-b", "a b", "^a.b", "$zgbldir", ("x"):rep(32), "^" .. ("x"):rep(32)} do
    for _, f in ipairs {ydb.get, ydb.data, ydb.delete_node, ydb.delete_tree, ydb.kill, ydb.subscript_next,
      ydb.subscript_previous,
      ydb.node_next, ydb.node_previous, ydb.lock_incr, ydb.lock_decr, ydb.incr, ydb.node, ydb.key} do
      local e = t.fails("NDB_E_ARGUMENT", f, name)
      t.equal(ydb.get_error_code(e), ydb.NDB_E_ARGUMENT)
    end
    t.fails("NDB_E_ARGUMENT", ydb.set, name, 1)
  end
  for _, wrong in ipairs {true, 5, {}, print} do
    t.fails("NDB_E_ARGUMENT", ydb.get, wrong)
    t.fails("NDB_E_ARGUMENT", ydb.node, wrong)
    t.fails("NDB_E_ARGUMENT", ydb.key, wrong)
    t.fails("NDB_E_ARGUMENT", ydb.set, wrong, 1)
    if wrong ~= 5 then t.fails("NDB_E_ARGUMENT", ydb.get, "^s", {wrong}) end
  end
end

function T.subscripts_that_are_refused(_, t)
  local path = {}
  for i = 1, 31 do path[i] = i end
  t.equal(ydb.set("^deep", path, "31"), "31")
  t.equal(ydb.get("^deep", path), "31")
  path[32] = 32
  t.fails("NDB_E_ARGUMENT", ydb.set, "^deep", path, "32")
  t.fails("NDB_E_ARGUMENT", ydb.get, "^deep", path)
  t.fails("NDB_E_KEY", ydb.set, "^deep", ("x"):rep(1901), 1)
  ydb.set("^deep", ("x"):rep(1100), 1) -- longer than M allows
end

function T.data(_, t)
  local n = ydb.node("^d")
  t.equal(ydb.data("^d"), ydb.YDB_DATA_UNDEF)
  n.__ = 1
  t.equal(ydb.data("^d"), ydb.YDB_DATA_VALUE_NODESC)
  n.a.b.__ = 1
  t.equal(ydb.data("^d"), ydb.YDB_DATA_VALUE_DESC)
  t.equal(ydb.data("^d", {"a"}), ydb.YDB_DATA_NOVALUE_DESC)
  t.equal(ydb.data("^d", "a", "b"), 1)
  t.equal(n.a:data(), 10)
  t.equal(n.a:has_value(), false)
  t.equal(n.a:has_tree(), true)
  t.equal(n.a.b:has_value(), true)
  t.equal(n.a.b:has_tree(), false)
end

function T.delete(_, t)
  local n = ydb.node("^o")
  for _, delete in ipairs {ydb.delete_node, function(...) ydb.node(...):delete_node() end,
    function(...) ydb.node(...).__ = nil end} do
    n.a.__, n.a.b.__ = 1, 2
    delete("^o", {"a"})
    t.equal(n.a:data(), 10)
    delete("^o", "a", "b")
    t.equal(n:data(), 0)
  end
  for _, delete in ipairs {ydb.delete_tree, ydb.kill, function(...) ydb.node(...):delete_tree() end,
    function(...) ydb.node(...):kill() end} do
    n.a.__, n.a.b.__, n.c.__ = 1, 2, 3
    delete("^o", {"a"})
    t.equal(n.a:data(), 0)
    t.equal(n.c.__, "3")
    delete("^o")
    t.equal(n:data(), 0)
    delete("^o")
  end
end

function T.increments(_, t)
  t.equal(ydb.incr("^i"), "1")
  t.equal(ydb.incr("^i", 2), "3")
  t.equal(ydb.incr("^i", "2"), "5")
  t.equal(ydb.incr("^i", -5), "0")
  t.equal(ydb.incr("^i", {"a", "b"}), "1")
  t.equal(ydb.incr("^i", {"a", "b"}, 10), "11")
  t.equal(ydb.incr("^i", "a", "b", 1), "12")
  t.equal(ydb.incr("^i", {"a"}, "b", "1.5"), "13.5")
  t.equal(ydb.incr("^i", {"a", "b"}, nil), "14.5")
  local n = ydb.node("^i")
  t.equal(n.x:incr(), "1")
  t.equal(n.x:incr(4), "5")
  t.equal(n.x:incr("5"), "10")
  t.equal(n.x:incr(0.1), "10.1")
  t.equal(ydb.incr(n.x), "11.1")
  t.equal(n.text:incr("3 apples"), "3")
  n.text.__ = "abc"
  t.equal(n.text:incr(), "1")
  t.equal((n.plus + 5).__, "5")
  t.equal((n.plus - 2).__, "3")
  t.equal((n.plus - "-2").__, "5")
  local same = n.plus
  same = same + 1
  t.equal(same, n.plus)
  for _, by in ipairs {true, false, {}, print} do
    t.fails("NDB_E_ARGUMENT", n.x.incr, n.x, by)
    if type(by) ~= "table" then t.fails("NDB_E_ARGUMENT", ydb.incr, "^i", {"x"}, by) end
  end
  n.huge.__ = "9E46"
  t.equal(ydb.get_error_code(t.fails("NDB_E_NUMBER", n.huge.incr, n.huge, "9E46")), ydb.NDB_E_NUMBER)
  t.fails("node + number", function() return 1 + n.x end)
end

-- lua-yottadb has no compare_and_set. It compares values as they were read.
function T.compare_and_set(_, t)
  local n = ydb.node("^c")
  for _, value in ipairs {5, 0.5, "5", "05", "text", "", 2 ^ 53, "12345678901234567", -3, "1E5"} do
    n.__ = value
    local read = n.__
    t.equal(n:compare_and_set(read .. "x", 1), false, "another value than " .. read)
    t.equal(n:compare_and_set(nil, 1), false)
    t.equal(n:compare_and_set(read, "new"), true, "the value that was read: " .. read)
    t.equal(n.__, "new")
  end
  n.__ = 5
  t.equal(n:compare_and_set(5, 6), true)
  n:incr("12345678901234567")
  t.equal(n:compare_and_set(n.__, 7), true)
  t.equal(n.__, "7")
  n.__ = nil
  t.equal(n:compare_and_set("7", 8), false)
  t.equal(n:compare_and_set(nil, 8), true)
  t.fails("boolean", n.compare_and_set, n, "8", true)
  t.equal(n.__, "8")
end

-- Subscripts and iteration ----------------------------------------------------------------

local function fruits()
  for i, name in ipairs {"apple", "banana", "cherry"} do
    ydb.set("^f", name, i)
    ydb.set("^f", name, "color", "c" .. i)
  end
  ydb.set("^f", 10, "ten")
  ydb.set("^f", 9, "nine")
  return ydb.node("^f")
end

function T.subscript_next_and_previous(_, t)
  fruits()
  t.equal(ydb.subscript_next("^f", {""}), "9")
  t.equal(ydb.subscript_next("^f", {"9"}), "10")
  t.equal(ydb.subscript_next("^f", 10), "apple")
  t.equal(ydb.subscript_next("^f", "apple"), "banana")
  t.equal(ydb.subscript_next("^f", "b"), "banana")
  t.equal(ydb.subscript_next("^f", "cherry"), nil)
  t.equal(ydb.subscript_next("^f", {"apple"}, ""), "color")
  t.equal(ydb.subscript_previous("^f", {""}), "cherry")
  t.equal(ydb.subscript_previous("^f", "apple"), "10")
  t.equal(ydb.subscript_previous("^f", 9), nil)
  t.equal(ydb.subscript_previous("^f", {"cherry", ""}), "color")
  ydb.set("^g", 1)
  t.equal(ydb.subscript_next("^f"), "^g")
  t.equal(ydb.subscript_previous("^g"), "^f")
  t.equal(ydb.subscript_next("^g"), nil)
end

function T.subscripts(_, t)
  local n = fruits()
  t.list(t.collect(ydb.subscripts("^f", {""})), {"9", "10", "apple", "banana", "cherry"})
  t.list(t.collect(ydb.subscripts("^f", {"apple"})), {"banana", "cherry"})
  t.list(t.collect(ydb.subscripts("^f", {"apple"}, true)), {"10", "9"})
  t.list(t.collect(ydb.subscripts("^f", "", true)), {"cherry", "banana", "apple", "10", "9"})
  t.list(t.collect(ydb.subscripts("^f", "apple", false)), {"banana", "cherry"})
  t.list(t.collect(n:subscripts()), {"9", "10", "apple", "banana", "cherry"})
  t.list(t.collect(n:subscripts(true)), {"cherry", "banana", "apple", "10", "9"})
  t.list(t.collect(n.apple:subscripts()), {"color"})
  t.list(t.collect(n.none:subscripts()), {})
end

function T.node_next_and_previous(_, t)
  fruits()
  local seen, path = {}, {}
  while true do
    path = ydb.node_next("^f", path)
    if not path then break end
    seen[#seen + 1] = table.concat(path, ".")
  end
  t.list(seen, {"9", "10", "apple", "apple.color", "banana", "banana.color", "cherry", "cherry.color"})
  t.list(ydb.node_next("^f", "apple"), {"apple", "color"})
  t.equal(ydb.node_next("^f", "cherry", "color"), nil)
  t.list(ydb.node_previous("^f", {"banana"}), {"apple", "color"})
  t.list(ydb.node_previous("^f", "apple", "color"), {"apple"})
  t.equal(ydb.node_previous("^f", 9), nil)
  t.equal(ydb.node_previous("^f"), nil)
  ydb.set("^f", "root")
  t.list(ydb.node_previous("^f", 9), {})
end

function T.nodes(_, t)
  fruits()
  local function paths(...)
    local seen = {}
    for path in ydb.nodes(...) do seen[#seen + 1] = table.concat(path, ".") end
    return seen
  end
  t.list(paths("^f"), {"9", "10", "apple", "apple.color", "banana", "banana.color", "cherry", "cherry.color"})
  t.list(paths("^f", true), {"cherry.color", "cherry", "banana.color", "banana", "apple.color", "apple", "10", "9"})
  t.list(paths("^f", {"banana"}), {"banana.color", "cherry", "cherry.color"})
  t.list(paths("^f", {"apple"}, true), {"10", "9"})
  t.list(paths("^f", "apple", "color", true), {"apple", "10", "9"})
  t.list(paths("^none"), {})
end

function T.pairs(_, t)
  local n = fruits()
  local seen = {}
  for child, value, subscript in n:pairs() do
    seen[#seen + 1] = tostring(child) .. "=" .. tostring(value) .. "," .. subscript
    t.equal(child, n[subscript], "the same node")
    t.equal(child:ismutable(), false)
  end
  local want = {"^f(9)=nine,9", "^f(10)=ten,10", '^f("apple")=1,apple', '^f("banana")=2,banana',
    '^f("cherry")=3,cherry'}
  t.list(seen, want)
  seen = {}
  for child, value, subscript in n:__pairs(true) do
    seen[#seen + 1] = tostring(child) .. "=" .. value .. "," .. subscript
  end
  for i = 1, 5 do t.equal(seen[6 - i], want[i]) end
  seen = {}
  if pcall(pairs, n) or _VERSION ~= "Lua 5.1" then
    for child, value in pairs(n) do seen[#seen + 1] = child:name() .. value end
    t.list(seen, {"9nine", "10ten", "apple1", "banana2", "cherry3"})
  end
  local kept = {}
  for child in n:pairs() do kept[#kept + 1] = child end
  t.equal(kept[3].__, "1", "a node that is kept stays the same")
end

function T.ipairs(ndb, t)
  fruits()
  for _, n in ipairs {ydb.node("^f"), ndb.node("^f"), ydb.key("^f")} do
    t.fails("ipairs", function()
      for i in ipairs(n) do
        if i > 3 then return end
      end
    end)
  end
  local list = t.collect(ipairs {4, 5})
  t.list(list, {1, 2})
end

-- Node objects ----------------------------------------------------------------------------

function T.nodes_by_all_spellings(_, t)
  local n = ydb.node("^n", "sub1", "sub2")
  t.equal(ydb.node("^n")("sub1", "sub2"), n)
  t.equal(ydb.node("^n")("sub1")("sub2"), n)
  t.equal(ydb.node("^n", {"sub1", "sub2"}), n)
  t.equal(ydb.node("^n", {"sub1"}, "sub2"), n)
  t.equal(ydb.node("^n").sub1.sub2, n)
  t.equal(ydb.node("^n")["sub1"]["sub2"], n)
  t.equal(ydb.node(ydb.node("^n", "sub1"), "sub2"), n)
  t.equal(ydb.node(n), n)
  t.equal(ydb.node("^n")[3], ydb.node("^n")["3"])
  t.equal(ydb.node("^n")[3.0], ydb.node("^n")[3])
  t.equal(tostring(ydb.node("^n")[0.1]), "^n(.1)")
  t.equal(tostring(ydb.node("^n")[2 ^ 53]), "^n(9007199254740992)")
  t.equal(ydb.node("^n").a == ydb.node("^m").a, false)
end

function T.properties(_, t)
  local n = ydb.node("^n").a[5]
  t.equal(n:name(), "5")
  t.equal(n:varname(), "^n")
  t.equal(n:depth(), 2)
  t.list(n:subsarray(), {"a", "5"})
  t.equal(ydb.node("^n"):name(), "^n")
  t.equal(ydb.node("^n"):depth(), 0)
  t.list(ydb.node("^n"):subsarray(), {})
  t.equal(n:ismutable(), false)
  t.equal(n:__name(), "5")
  t.equal(tostring(n), '^n("a",5)')
  t.equal(n:____tostring(), '^n("a",5)')
  t.equal(n:____repr(), 'yottadb.node("^n", "a", "5")')
  t.equal(n:____add(2), n)
  t.equal(n:____sub(1).__, "1")
end

function T.isnode(ndb, t)
  t.equal(ydb.isnode(ydb.node("^n")), true)
  t.equal(ydb.isnode(ydb.node("^n").a.b), true)
  t.equal(ydb.isnode(ydb.key("^n")), true)
  for _, other in ipairs {{}, "^n", 5, print, true, ndb.node("^n")} do t.equal(ydb.isnode(other), false) end
  t.equal(ydb.isnode(nil), false)
end

function T.names_that_begin_with_underscores(_, t)
  local n = ydb.node("^u")
  n("__name").__ = 1
  t.equal(ydb.get("^u", "__name"), "1")
  t.fails("there is no method no_such_method", function() return n.__no_such_method end)
  t.fails("cannot assign", function() n.x = 5 end)
  n.get.__, n.value.__ = "names of methods", "are subscripts"
  t.equal(n.get:get(), "names of methods")
  t.equal(n.value:get(), "are subscripts")
  t.fails("there is no method", function() n:nothing() end)
end

function T.keys(_, t)
  local n = ydb.node("^k")
  n.a.__, n.b.__, n.c.__, n.b.sub.__ = 1, 2, 3, 4
  local key = ydb.key("^k")("b")
  t.equal(ydb.key("^k", "b"), key)
  t.equal(ydb.key("^k", {"b"}), key)
  t.equal(key.name, "b")
  t.equal(key.value, "2")
  t.equal(key.data, 11)
  t.equal(key.has_value, true)
  t.equal(key.has_tree, true)
  t.equal(key.__varname, "^k")
  t.list(key.__subsarray, {"b"})
  t.equal(ydb.key("^k").name, "^k")
  t.equal(ydb.key("^k").value, nil)
  t.equal(ydb.key("^k").has_value, false)
  t.equal(ydb.key("^k")("a").has_tree, false)
  key.value = "new"
  t.equal(n.b.__, "new")
  t.equal(key.__, "new")
  key.__ = "newer"
  t.equal(key:get(), "newer")
  t.equal(key.sub.value, "4")
  t.equal(tostring(key), '^k("b")')
  t.equal(key:incr(3), "3")
  key:delete_node()
  t.equal(n.b:data(), 10)
  t.equal(key.data, 10)
  key:delete_tree()
  t.equal(key.data, 0)
  t.fails("cannot assign", function() key.name = "x" end)
  local node = ydb.node(key)
  t.equal(node:name(), "b")
  t.equal(node, n.b, "a node of a key")
  t.equal(ydb.key(n.a).value, "1")
end

function T.siblings_of_keys(_, t)
  local n = ydb.node("^k")
  for _, name in ipairs {"a", "b", "c", "d"} do n[name].__ = name end
  local key = ydb.key("^k", "b")
  t.equal(key:subscript_next(), "c")
  t.equal(key:subscript_next(), "d")
  t.equal(key:subscript_next(), nil)
  t.equal(key:subscript_next(true), "c")
  t.equal(key:subscript_previous(), "b")
  t.equal(key:subscript_previous(), "a")
  t.equal(key:subscript_previous(true), "a")
  t.equal(key:subscript_previous(), nil)
  t.list(t.collect(key:subscripts()), {"c", "d"})
  t.list(t.collect(key:subscripts(true)), {"a"})
  t.list(t.collect(ydb.key("^k", ""):subscripts()), {"a", "b", "c", "d"})
  local begin = ydb.key("^k", "")
  t.equal(begin:subscript_next(), "a")
  t.equal(ydb.key("^k", ""):subscript_next(), "a", "a new object begins where it is")
  t.equal(ydb.key("^k", ""):subscript_previous(), "d")
end

function T.inherit(_, t)
  local new, class, super = ydb.inherit(ydb.node)
  function class.get(self, default)
    local value = super.get(self, default)
    return value and "<" .. value .. ">"
  end
  function class.set(self, value) return super.__set(self, value and value:upper()) end
  function class.twice(self) return self.__ .. self.__ end
  local n = new("^h").a
  n.__ = "text"
  t.equal(ydb.get("^h", "a"), "TEXT", "an assignment calls set")
  t.equal(n.__, "<TEXT>", "reading calls get")
  t.equal(n:get(), "<TEXT>")
  t.equal(n:__get(), "<TEXT>")
  n:set("more")
  t.equal(n.__, "<MORE>")
  n:__set("again")
  t.equal(n:twice(), "<AGAIN><AGAIN>")
  n.sub.__ = "x"
  t.equal(n.sub.__, "<X>")
  t.equal(n.none.__, nil)
  t.equal(n.none:get("d"), "<d>")
  n.__ = nil
  t.equal(n:data(), 10)
  t.equal(ydb.isnode(n), true)
  t.equal(ydb.node("^h").a.sub.__, "X", "other nodes are as they were")
  for child, value in new("^h"):pairs() do
    t.equal(value, nil)
    t.equal(child:data(), 10)
    t.equal(child.sub:twice(), "<X><X>")
  end
end

function T.inherit_in_other_ways(_, t)
  local methods = {size = function(self) return #self:get("") end}
  local new, class = ydb.inherit(ydb.node, {__index = methods,
    __tostring = function(self) return "node " .. self:name() end,
    __concat = function(a, b) return tostring(a) .. tostring(b) end})
  t.equal(class, methods)
  local n = new("^h", "a")
  n.__ = "four"
  t.equal(n:size(), 4)
  t.equal(tostring(n), "node a")
  t.equal(n .. "!", "node a!")
  local again, sub, super = ydb.inherit(new, {loud = function(self) return self:size() .. "!" end})
  t.equal(again("^h", "a"):loud(), "4!")
  t.equal(tostring(again("^h", "a")), "node a")
  function sub.size(self) return -super.size(self) end
  t.equal(again("^h", "a"):loud(), "-4!")
  t.equal(n:size(), 4)
  n.size_.__ = 1
  for child in new("^h").a:pairs() do t.equal(tostring(child), "node size_") end
  local key = ydb.inherit(ydb.key, {double = function(self) return self.value .. self.value end})
  t.equal(key("^h", "a"):double(), "fourfour")
  t.fails("a constructor", ydb.inherit, 5)
  t.fails("a constructor", ydb.inherit, print)
  t.fails("a metatable", ydb.inherit, ydb.node, 5)
  t.fails("cannot be replaced", ydb.inherit, ydb.node, {__newindex = print})
  t.fails("table of methods", ydb.inherit, ydb.node, {__index = print})
end

-- Trees -----------------------------------------------------------------------------------

function T.settree(_, t)
  local n = ydb.node("^t")
  n.age.__, n.age.since.__ = 20, 2003
  n:settree {__ = "berry", weight = 78, ["!@#$"] = "junk", looks = {__ = "fine", eyes = "blue"}, age = ydb.DELETE,
    [3] = "x"}
  t.equal(n.__, "berry")
  t.equal(n.weight.__, "78")
  t.equal(n["!@#$"].__, "junk")
  t.equal(n.looks.__, "fine")
  t.equal(n.looks.eyes.__, "blue")
  t.equal(n[3].__, "x")
  t.equal(n.age.__, nil)
  t.equal(n.age.since.__, "2003", "the mark deletes a value, not the subtree")
  n:settree {__ = ydb.DELETE}
  t.equal(n:data(), 10)
  n:settree({a = 1, b = 2, c = 3, d = 4}, function(node, key, value)
    t.equal(node, n)
    if key == "a" then return "A", value + 1 end
    if key == "b" then return nil, 5 end
    if key == "c" then return key, nil end
    return key, ydb.DELETE
  end)
  t.equal(n.A.__, "2")
  for _, name in ipairs {"a", "b", "c", "d"} do t.equal(n[name]:data(), 0) end
  t.fails("boolean", n.settree, n, {x = true})
  n:settree({x = true}, function(_, key, value) return key, tostring(value) end)
  t.equal(n.x.__, "true")
  local loop = {}
  loop.loop = loop
  t.fails("31", n.settree, n, loop)
end

function T.gettree(_, t)
  local n = ydb.node("^t")
  n:settree {__ = "root", a = {__ = 1, b = {__ = 2, c = 3}}, d = 4, e = {f = 5}}
  local tree = n:gettree()
  t.equal(tree.__, "root")
  t.equal(tree.a.__, "1")
  t.equal(tree.a.b.__, "2")
  t.equal(tree.a.b.c, "3")
  t.equal(tree.d, "4")
  t.equal(tree.e.f, "5")
  t.equal(tree.e.__, nil)
  tree = n:gettree(1)
  t.equal(tree.a, "1")
  t.equal(tree.e, nil)
  tree = n:gettree(2)
  t.equal(tree.a.b, "2")
  local seen = {}
  tree = n:gettree(nil, function(node, name, value, recurse, depth)
    seen[#seen + 1] = ("%s %s %s %d"):format(name, tostring(value), tostring(recurse), depth)
    t.equal(node:varname(), "^t")
  end)
  table.sort(seen)
  t.list(seen, {" root true 0", "a 1 true 1", "b 2 true 2", "c 3 true 3", "d 4 true 1", "e nil true 1", "f 5 true 2"})
  t.equal(next(tree), nil, "a filter that returns nothing stores nothing")
  tree = n:gettree(nil, function(_, name, value) return tonumber(value) or value, name ~= "a" end)
  t.equal(tree.d, 4)
  t.equal(tree.a, 1)
  t.equal(tree.e.f, 5)
  tree = n:gettree(nil, function(_, _, value) return value, false end)
  t.equal(tree.__, "root")
  t.equal(tree.d, nil)
end

function T.dump(_, t)
  local n = ydb.node("^t")
  n:settree {__ = 1, a = {b = "text", c = 2}, d = 0.5}
  local whole = '^t="1"\n^t("a","b")="text"\n^t("a","c")="2"\n^t("d")=".5"'
  t.equal(n:dump(), whole)
  t.equal(ydb.dump("^t"), whole)
  t.equal(ydb.dump(n), whole)
  t.equal(ydb.dump("^t", {"a"}), '^t("a","b")="text"\n^t("a","c")="2"')
  t.equal(ydb.dump("^t", "a", "b"), '^t("a","b")="text"')
  t.equal(ydb.dump(n, "a", "b"), '^t("a","b")="text"')
  t.equal(ydb.dump("^t", {"a"}, 1):match("[^\n]*"), '^t("a","b")="text"')
  t.equal(ydb.dump("^t", {}, 2):match("more than 2 nodes"), "more than 2 nodes")
  t.equal(n:dump(3):match("more than 3 nodes"), "more than 3 nodes")
  for i = 1, 40 do n.many[i].__ = i end
  t.equal(select(2, n.many:dump():gsub("\n", "")), 30)
  t.equal(select(2, n.many:dump(100):gsub("\n", "")), 39)
  for _, lines in ipairs {-1, 0 / 0, 1.5, "x"} do t.fails("number of lines", n.dump, n, lines) end
end

function T.zwrite(_, t)
  t.equal(ydb.str2zwr("a\0b"), '"a"_$C(0)_"b"')
  t.equal(ydb.str2zwr("plain"), '"plain"')
  t.equal(ydb.str2zwr('quo"te'), '"quo""te"')
  t.equal(ydb.str2zwr(""), '""')
  t.equal(ydb.zwr2str('"a"_$C(0)_"b"'), "a\0b")
  t.equal(ydb.zwr2str('"quo""te"'), 'quo"te')
  t.equal(ydb.zwr2str('""'), "")
  t.equal(ydb.zwr2str("5"), "5")
  t.fails("NDB_E_ARGUMENT", ydb.zwr2str, "no zwrite")
  t.fails("NDB_E_ARGUMENT", ydb.zwr2str, {})
end

-- Locks -----------------------------------------------------------------------------------

function T.locks(_, t)
  local n = ydb.node("^l")
  t.equal(ydb.lock {"^l", {"^m", {"a"}}, {"^m", "b"}, n.a, {n, "x"}}, 0)
  t.equal(ydb.lock(), 0)
  t.equal(ydb.lock({n}, 1), 0)
  t.equal(ydb.lock_incr("^l"), 0)
  t.equal(ydb.lock_incr("^l", 1), 0)
  t.equal(ydb.lock_incr("^l", {"a"}), 0)
  t.equal(ydb.lock_incr("^l", {"a"}, 0.5), 0)
  t.equal(ydb.lock_incr("^l", "a", "b", 1), 0)
  t.equal(ydb.lock_decr("^l", {"a"}), 0)
  t.equal(ydb.lock_decr("^none"), 0)
  t.equal(ydb.grab("^l", {"a"}), 0)
  t.equal(ydb.release("^l", {"a"}), 0)
  t.equal(n:lock(), 0)
  t.equal(n:lock(1), 0)
  t.equal(n:lock_incr(), 0)
  t.equal(n:lock_incr(1), 0)
  t.equal(n:lock_decr(), 0)
  t.equal(n:grab(1), 0)
  t.equal(n:release(), 0)
  for _, timeout in ipairs {-1, 0 / 0, "x", true} do
    t.fails("number of seconds", n.lock_incr, n, timeout)
    t.fails("number of seconds", ydb.lock, {n}, timeout)
  end
  t.fails("a table of nodes", ydb.lock, "^l")
  t.fails("NDB_E_ARGUMENT", ydb.lock, {{}})
  t.fails("NDB_E_ARGUMENT", ydb.lock, {5})
end

function T.lock_timeouts(_, t)
  ydb.node("^l").a:lock()
  local said = t.other [[
    local ydb = require "yottadb"
    local n = ydb.node("^l")
    for _, f in ipairs {
      function() n.a:lock(0.01) end, function() n.a:lock_incr(0.01) end, function() n.a:grab(0) end,
      function() ydb.lock({n}, 0.01) end,
      function() ydb.lock_incr("^l", {"a"}, 0) end, function() ydb.lock_incr("^l", "a", "below", 0) end,
    } do
      local ok, message = pcall(f)
      io.write(tostring(ok), " ", tostring(ydb.get_error_code(message) == ydb.YDB_LOCK_TIMEOUT), " ")
    end
    n.b:lock(0.01)
  ]]
  t.equal(said, ("false true "):rep(6))
  ydb.lock()
  t.equal(t.other [[require("yottadb").node("^l").a:lock(1) io.write("free")]], "free")
end

-- Transactions ----------------------------------------------------------------------------

function T.transactions_that_commit(_, t)
  for i, result in ipairs {{}, {ydb.YDB_OK}, {nil}, {0}, {"text"}, {true}, {{}}} do
    local got = ydb.tp(function() ydb.set("^t", i, "committed") return result[1] end)
    t.equal(ydb.get("^t", i), "committed")
    t.equal(got, result[1])
  end
  local a, b
  ydb.tp(function(...) a, b = ... end, "x", "y")
  t.equal(a .. b, "xy")
  for _, id in ipairs {"", "BA", "BATCH", "mine"} do
    ydb.tp(id, function() ydb.set("^t", "id", id) end)
    t.equal(ydb.get("^t", "id"), id)
    ydb.tp(id, {"x"}, function(v) ydb.set("^t", "id", v) end, "v")
    t.equal(ydb.get("^t", "id"), "v")
  end
  local twice = ydb.transaction(function(v) ydb.set("^t", "twice", v .. v) return ydb.YDB_OK end)
  t.equal(twice("a"), 0)
  t.equal(twice("b"), 0)
  t.equal(ydb.get("^t", "twice"), "bb")
  ydb.transaction("BATCH", {"x"}, function() ydb.set("^t", "three", 3) end)()
  t.equal(ydb.get("^t", "three"), "3")
  for _, wrong in ipairs {{5}, {"id"}, {{}, {}}, {"id", {}, 5}} do
    t.fails("NDB_E_ARGUMENT", ydb.tp, unpack and unpack(wrong) or table.unpack(wrong))
    t.fails("NDB_E_ARGUMENT", ydb.transaction, unpack and unpack(wrong) or table.unpack(wrong))
  end
end

function T.transactions_that_roll_back(_, t)
  local e = t.fails("NDB_TP_ROLLBACK", ydb.tp, function()
    ydb.set("^t", 1)
    return ydb.YDB_TP_ROLLBACK
  end)
  t.equal(ydb.get_error_code(e), ydb.YDB_TP_ROLLBACK)
  e = t.fails("NDB_TP_ROLLBACK", ydb.tp, function()
    ydb.set("^t", 1)
    ydb.trollback()
  end)
  t.equal(ydb.get_error_code(e), ydb.YDB_TP_ROLLBACK)
  t.equal(t.fails("mine", ydb.tp, function()
    ydb.set("^t", 1)
    error("mine", 0)
  end), "mine")
  local ok, raised = pcall(ydb.tp, function() error(t) end)
  t.equal(ok, false)
  t.equal(raised, t)
  -- An error code rolls back and is raised.
  for _, code in ipairs {-150374082, ydb.YDB_LOCK_TIMEOUT, ydb.YDB_NODE_END, 5, -1, 0.5} do
    e = t.fails("returned this code", ydb.tp, function()
      ydb.set("^t", 1)
      return code
    end)
    t.equal(ydb.get_error_code(e), code ~= 0.5 and code or nil)
  end
  t.equal(ydb.data("^t"), 0)
  t.fails("no transaction is open", ydb.trollback)
  t.fails("no transaction is open", ydb.trestart)
end

function T.transactions_that_restart(_, t)
  local runs = 0
  ydb.tp(function()
    runs = runs + 1
    ydb.incr("^r")
    if runs < 3 then return ydb.YDB_TP_RESTART end
    return ydb.YDB_OK
  end)
  t.equal(runs, 3)
  t.equal(ydb.get("^r"), "1")
  runs = 0
  ydb.tp(function()
    runs = runs + 1
    ydb.incr("^r")
    if runs < 3 then ydb.trestart() end
  end)
  t.equal(ydb.get("^r"), "2")
  ydb.tp(function()
    local ok, problem = pcall(ydb.trestart)
    t.equal(ok, false)
    t.equal(ydb.get_error_code(problem), ydb.YDB_TP_RESTART)
  end)
end

-- $ZMAXTPTIME limits restarts in lua-yottadb; here tp_limits does.
function T.limits_of_transactions(_, t)
  ydb.tp_limits {restarts = 5}
  local runs = 0
  local e = t.fails("run 6 times", ydb.tp, function()
    runs = runs + 1
    ydb.set("^r", runs)
    return ydb.YDB_TP_RESTART
  end)
  t.equal(runs, 6)
  t.equal(ydb.get_error_code(e), ydb.NDB_TP_LIMIT)
  t.equal(ydb.data("^r"), 0)
  ydb.tp_limits {restarts = 1000}
end

function T.nested_transactions(_, t)
  ydb.tp(function()
    ydb.set("^t", "outer", 1)
    ydb.tp(function() ydb.set("^t", "inner", 1) end)
    t.fails("ROLLBACK", ydb.tp, function()
      ydb.set("^t", "undone", 1)
      return ydb.YDB_TP_ROLLBACK
    end)
    t.fails("this code", ydb.tp, function()
      ydb.set("^t", "undone", 1)
      return -7
    end)
  end)
  t.equal(ydb.get("^t", "outer"), "1")
  t.equal(ydb.get("^t", "inner"), "1")
  t.equal(ydb.get("^t", "undone"), nil)
  local runs = 0
  ydb.tp(function()
    runs = runs + 1
    ydb.incr("^t", {"n"})
    ydb.tp(function()
      if runs < 3 then return ydb.YDB_TP_RESTART end
    end)
  end)
  t.equal(runs, 3)
  t.equal(ydb.get("^t", "n"), "1")
end

function T.trees_in_memory_are_put_back(_, t)
  for names, want in pairs {[{"a"}] = {"1", "3"}, [{"a", "b"}] = {"1", "1"}, [{"*"}] = {"1", "1"}, [{}] = {"3", "3"}} do
    ydb.set("a", 0)
    ydb.set("b", 0)
    local runs = 0
    ydb.tp(names, function()
      runs = runs + 1
      ydb.incr("a")
      ydb.incr("b")
      if runs < 3 then return ydb.YDB_TP_RESTART end
    end)
    t.equal(ydb.get("a"), want[1])
    t.equal(ydb.get("b"), want[2])
  end
  ydb.set("a", "before")
  pcall(ydb.tp, {"a"}, function()
    ydb.set("a", "after")
    ydb.trollback()
  end)
  t.equal(ydb.get("a"), "before", "a rollback puts them back too")
end

-- The rest --------------------------------------------------------------------------------

function T.codes(_, t)
  for name, value in pairs {YDB_OK = 0, YDB_DATA_UNDEF = 0, YDB_DATA_VALUE_NODESC = 1, YDB_DATA_NOVALUE_DESC = 10,
    YDB_DATA_VALUE_DESC = 11, YDB_TP_RESTART = 2147483646, YDB_TP_ROLLBACK = 2147483645, YDB_NODE_END = 2147483644,
    YDB_LOCK_TIMEOUT = 2147483643, YDB_NOTOK = 2147483642, YDB_MAX_SUBS = 31, YDB_MAX_IDENT = 31} do
    t.equal(ydb[name], value, name)
  end
  t.equal(ydb._VERSION, "3.0")
  t.equal(ydb.get_error_code("YDB Error: -150374082: text"), -150374082)
  t.equal(ydb.get_error_code("some text"), nil)
  t.equal(ydb.get_error_code(nil), nil)
  t.equal(ydb.get_error_code({}), nil)
  t.fails("error codes of M are not supported", function() return ydb.YDB_ERR_GVUNDEF end)
end

-- M routines cannot be called.
function T.call_ins(_, t)
  t.fails("M routines cannot be called", ydb.require, "table.ci")
  t.fails("M routines cannot be called", ydb.require, "add: long add(I:long)")
  t.equal(select("#", ydb.init()), 0)
  t.equal(select("#", ydb.init(ydb.block_M_signals)), 0)
  t.equal(select("#", ydb.block_M_signals(true)), 0)
  t.equal(ydb.ydb_eintr_handler(), ydb.YDB_OK)
end

function T.special_variables_are_none(_, t)
  t.fails("NDB_E_ARGUMENT", ydb.get, "$zgbldir")
  t.fails("NDB_E_ARGUMENT", ydb.set, "$zmaxtptime", 1)
end

function T.the_empty_subscript(_, t)
  local n = ydb.node("^e")
  n("").__ = "empty"
  n.a.__ = "a"
  t.list(t.collect(n:subscripts()), {"", "a"})
  t.equal(ydb.subscript_next("^e", ""), "a")
end

function T.values_of_the_other_module(ndb, t)
  ndb.node("^s").yes.__ = true
  ndb.node("^s").number.__ = 5.5
  t.equal(ydb.node("^s").yes.__, "1")
  t.equal(ydb.node("^s").number.__, "5.5")
end

return T
