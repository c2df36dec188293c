-- Locks: counted, hierarchical, across processes.
local T = {}

local TRY = "local ok, e = pcall(function() ndb.node(%s):lock_incr(%s) end) " ..
  "print(ok and 'locked' or ndb.get_error_code(e) == ndb.NDB_E_TIMEOUT and 'timeout' or e)"

local function try(t, path, timeout) return (t.other(TRY:format(path, timeout or 0))) end

function T.counted(ndb, t)
  local n = ndb.node("^l").a
  n:lock_incr()
  n:lock_incr(1)
  t.equal(try(t, "'^l', 'a'"), "timeout\n")
  n:lock_decr()
  t.equal(try(t, "'^l', 'a'"), "timeout\n")
  n:lock_decr()
  t.equal(try(t, "'^l', 'a'"), "locked\n")
  n:lock_decr() -- not held: no effect
  n:grab()
  n:release()
  t.equal(try(t, "'^l', 'a'"), "locked\n")
end

function T.hierarchical(ndb, t)
  ndb.node("^l").a.b:lock_incr()
  t.equal(try(t, "'^l'"), "timeout\n")
  t.equal(try(t, "'^l', 'a', 'b', 'c'"), "timeout\n")
  t.equal(try(t, "'^l', 'a', 'c'"), "locked\n")
end

function T.of_a_dead_process(ndb, t)
  local text = t.other("ndb.node('^l').x:lock_incr() io.write('held') io.flush() os.execute('kill -9 $PPID')")
  t.equal(text:sub(1, 4), "held")
  ndb.node("^l").x:lock_incr(5)
end

function T.all_or_none(ndb, t)
  ndb.lock({"^a", {"^b", 1}, {"^b", {2, 3}}, ndb.node("^c")}, 1)
  t.equal(try(t, "'^b', 2, 3"), "timeout\n")
  t.equal(try(t, "'^b', 4"), "locked\n")
  ndb.lock({"^d"})
  t.equal(try(t, "'^a'"), "locked\n", "lock releases what was held")
  t.equal(try(t, "'^d'"), "timeout\n")
  ndb.lock()
  t.equal(try(t, "'^d'"), "locked\n")
  ndb.node("^e"):lock(0)
  ndb.node("^f"):lock(0)
  t.equal(try(t, "'^e'"), "locked\n")
  t.equal(try(t, "'^f'"), "timeout\n")
end

-- Programs for M change several nodes like this, with a lock in place of a transaction.
function T.changes_under_a_lock(ndb, t)
  if t.collecting then return end -- it measures an amount
  local work = [[
    local n = ndb.node("^n")
    n.ready:incr()
    while n.ready:get(0) < 2 do end
    for _ = 1, 5000 do
      n:lock_incr()
      n.v.__ = n.v:get(0) + 1
      n:lock_decr()
    end
  ]]
  local run = assert((loadstring or load)("local ndb = ... " .. work))
  local finish = t.start(work)
  run(ndb)
  t.equal(finish(), "")
  ndb.node("^n"):lock_incr()
  t.equal(ndb.get("^n", "v"), 10000)
end

function T.functions(ndb, t)
  ndb.lock_incr("^a", {1})
  ndb.lock_incr("^a", {1}, 1)
  ndb.lock_incr("^a", 2, 1)
  t.equal(try(t, "'^a', 1"), "timeout\n")
  t.equal(try(t, "'^a', 2"), "timeout\n")
  ndb.lock_decr("^a", 2)
  t.equal(try(t, "'^a', 2"), "locked\n")
  ndb.lock_decr("^a", {1})
  ndb.lock_decr("^a", {1})
  t.equal(try(t, "'^a', 1"), "locked\n")
  t.fails("timeout must be", ndb.lock_incr, "^a", {1}, "x")
  t.fails("must be a table of nodes", ndb.lock, "^a")
end

return T
