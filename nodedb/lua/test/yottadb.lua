-- The face for scripts that were written for lua-yottadb.
local ydb = require "yottadb"
local T = {}

function T.strings(_, t)
  local n = ydb.node("^s")
  n.i.__ = 5
  n.f.__ = 0.5
  n.s.__ = "text"
  n.b.__ = "a\0b"
  t.equal(n.i.__, "5")
  t.equal(n.i:get(), "5")
  t.equal(ydb.get("^s", "i"), "5")
  t.equal(n.f.__, ".5")
  t.equal(n.s.__, "text")
  t.equal(n.b.__, "a\0b")
  t.equal(n.none.__, nil)
  t.equal(n.i:incr(), "6")
  t.equal(ydb.incr("^s", "i", 2), "8")
  for i = 1, 3 do n.list[i].__ = i * 10 end
  t.list(t.collect(n.list:subscripts()), {"1", "2", "3"})
  t.list(t.collect(n.list:subscripts(true)), {"3", "2", "1"})
  local seen = {}
  for child, value, subscript in n.list:pairs() do
    seen[#seen + 1] = tostring(child) .. value .. subscript
    t.equal(child, n.list[tonumber(subscript)])
  end
  t.list(seen, {'^s("list",1)101', '^s("list",2)202', '^s("list",3)303'})
  t.list(n.list[3]:subsarray(), {"list", "3"})
  t.equal(n.list[3]:name(), "3")
  t.equal(ydb.subscript_next("^s", {"list", "1"}), "2")
  t.list(ydb.node_next("^s", {"list", "1"}), {"list", "2"})
  t.fails("boolean", function() n.x.__ = true end)
  t.equal(ydb.data("^s", "list"), 10)
  t.equal(ydb.isnode(n), true)
  t.equal(n:ismutable(), false)
end

function T.booleans_of_the_other_face(ndb, t)
  ndb.node("^s").yes.__ = true
  t.equal(ydb.node("^s").yes.__, "1")
  t.equal(ydb.isnode(ndb.node("^s")), false)
end

function T.old_names(_, t)
  local n = ydb.key("^o")
  n.a.__ = 1
  n.a.b.__ = 2
  ydb.delete_node("^o", {"a"})
  t.equal(n.a:data(), 10)
  n.a.b:delete_node()
  t.equal(n.a:data(), 0)
  n.a.b.__ = 2
  n:delete_tree()
  t.equal(n:data(), 0)
  n.a.__ = 2
  ydb.delete_tree("^o")
  t.equal(n:data(), 0)
end

function T.codes(_, t)
  t.equal(ydb.YDB_DATA_VALUE_DESC, 11)
  t.equal(t.other("ndb.node('^l'):lock_incr() io.write('')"), "")
  local e = t.fails("NDB_TP_ROLLBACK", ydb.tp, function() ydb.trollback() end)
  t.equal(ydb.get_error_code(e), ydb.YDB_TP_ROLLBACK)
  local runs = 0
  ydb.tp(function()
    runs = runs + 1
    ydb.set("^r", runs)
    if runs == 1 then return ydb.YDB_TP_RESTART end
    return ydb.YDB_OK
  end)
  t.equal(runs, 2)
  t.fails("ROLLBACK", ydb.tp, function()
    ydb.set("^r", 100)
    return ydb.YDB_TP_ROLLBACK
  end)
  t.equal(ydb.get("^r"), "2")
  t.fails("no codes of M's errors", function() return ydb.YDB_ERR_GVUNDEF end)
end

function T.call_ins_are_refused(_, t)
  t.fails("no M here", ydb.require, "table.ci")
  t.equal(ydb.init(), nil)
  ydb.block_M_signals(true)
end

function T.settree(_, t)
  local n = ydb.node("^t")
  n:settree({__ = "berry", weight = 78, height = "80", [3] = "x"}, function(_, k, v)
    if k == "weight" then return k, v + 1 end
    return k, v
  end)
  local tree = n:gettree()
  t.equal(tree.__, "berry")
  t.equal(tree.weight, "79")
  t.equal(tree["3"], "x")
  n:settree {weight = ydb.DELETE}
  t.equal(n.weight.__, nil)
end

return T
