-- Trees as tables and as text.
local T = {}

function T.settree_and_gettree(ndb, t)
  local n = ndb.node("^t")
  n:settree {__ = "Ada", weight = 60, ["!@#$"] = "odd", looks = {__ = "fine", eyes = "blue"}, list = {10, 20}}
  t.equal(n.__, "Ada")
  t.equal(n.looks.__, "fine")
  t.equal(n.looks.eyes.__, "blue")
  t.equal(n.list[2].__, 20)
  local tree = n:gettree()
  t.equal(tree.__, "Ada")
  t.equal(tree.weight, 60)
  t.equal(tree.looks.__, "fine")
  t.equal(tree.looks.eyes, "blue")
  t.list(tree.list, {10, 20})
  t.equal(n:gettree(1).looks, "fine")
  t.equal(n:gettree(1).list, nil)
  n:settree {weight = ndb.DELETE, looks = {__ = ndb.DELETE, hair = "red"}}
  t.equal(n.weight:data(), 0)
  t.equal(n.looks:data(), 10)
  t.equal(n.looks.eyes.__, "blue")
  n.list:settree(ndb.DELETE)
  t.equal(n.list:data(), 0)
  n.plain:settree("a value")
  t.equal(n.plain.__, "a value")
  t.fails("is read-only", function() ndb.DELETE.x = 1 end)
end

function T.filters(ndb, t)
  local n = ndb.node("^f")
  local seen = 0
  n:settree({a = 1, b = 2, secret = 3, deep = {a = 4}}, function(node, name, value)
    t.equal(ndb.isnode(node), true)
    seen = seen + 1
    if name == "secret" then return nil end
    if name == "b" then return "bee", value * 10 end
    return name, value
  end)
  t.equal(seen, 5)
  t.equal(n.a.__, 1)
  t.equal(n.bee.__, 20)
  t.equal(n.secret:data(), 0)
  t.equal(n.deep.a.__, 4)
  local tree = n:gettree(nil, function(node, name, value, recurse, depth)
    t.equal(ndb.isnode(node), true)
    t.equal(depth, 1)
    if name == "a" then return nil, recurse end
    if name == "deep" then return "cut", false end
    return value, recurse
  end)
  t.equal(tree.a, nil)
  t.equal(tree.bee, 20)
  t.equal(tree.deep, "cut")
end

function T.endless_tables(ndb, t)
  local loop = {}
  loop.loop = loop
  t.fails("31", function() ndb.node("^l"):settree(loop) end)
end

function T.dump_and_load(ndb, t)
  local n = ndb.node("^d")
  n:settree {__ = "root", [1] = 5, [0.5] = "half", q = 'a "quoted" line\n', bin = "\0\1\255"}
  n:settree {yes = true, no = false, s = "5"}
  local text = n:dump()
  ndb.sync()
  t.equal(n:dump(), text)
  n:kill()
  t.equal(ndb.load(text), 8)
  t.equal(n:dump(), text)
  t.equal(n.bin.__, "\0\1\255")
  t.equal(n.q.__, 'a "quoted" line\n')
  for i = 1, 100 do n.many[i].__ = i end
  local _, lines = n.many:dump():gsub("\n", "")
  t.equal(lines, 30)
  t.equal(n.many:dump():match("[^\n]+$"), "... more than 30 nodes")
  _, lines = n.many:dump(100):gsub("\n", "")
  t.equal(lines, 99)
  _, lines = n.many:dump(math.huge):gsub("\n", "")
  t.equal(lines, 99)
  t.equal(ndb.dump("^d"), n:dump())
  t.fails("line 2", ndb.load, '^x(1)=1\n^x(2=1')
  t.fails("NDB_E_ARGUMENT", ndb.load, "nonsense")
  t.fails("NDB_E_ARGUMENT", ndb.load, "^x(1)")
  t.fails("NDB_E_ARGUMENT", ndb.load, "^x(1)=1 2")
end

function T.zwrite(ndb, t)
  t.equal(ndb.str2zwr("a\0b"), '"a"_$C(0)_"b"')
  t.equal(ndb.str2zwr('say "x"'), '"say ""x"""')
  t.equal(ndb.str2zwr(0.5), ".5")
  t.equal(ndb.zwr2str('"a"_$C(0)_"b"'), "a\0b")
  t.equal(ndb.zwr2str("5"), 5)
  local all = {}
  for i = 0, 255 do all[#all + 1] = string.char(i) end
  all = table.concat(all):rep(20)
  t.equal(ndb.zwr2str(ndb.str2zwr(all)), all)
  t.fails("NDB_E_ARGUMENT", ndb.zwr2str, '"open')
  t.fails("NDB_E_ARGUMENT", ndb.zwr2str, '"a"x')
end

return T
