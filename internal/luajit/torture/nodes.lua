--- nodes, a walk that writes and never ends: event time
local n = nodedb.node("^endless")
n:kill()
n[1].__ = 1
for i in n:subscripts() do n[i + 1].__ = i end
--- nodes, a walk in a transaction that writes and never ends: event time, memory
local n = nodedb.node("^endless")
nodedb.tp(function()
  n[1].__ = 1
  for i in n:subscripts() do n[i + 1].__ = i end
end)
--- nodes, a depth-first walk that writes and never ends: event time
local n = nodedb.node("^endless")
n:kill()
n[1].__ = 1
local i = 1
for _ in n:walk() do
  i = i + 1
  n[i].__ = i
end
--- nodes, a walk that kills what it walks: event time, ok
for i in nodedb.node("^big"):subscripts() do nodedb.kill("^other", i) end
--- nodes, a walk backwards and forwards for ever: event time
local n = nodedb.node("^big")
while true do
  for _ in n:subscripts({limit = 3}) do break end
  for _ in n:subscripts(true) do break end
  for _ in n:pairs() do break end
end
--- nodes, a kill of millions inside the time limit: ok
local n = nodedb.node("^kill")
if n:data() ~= 10 then error("nothing to kill") end
n:kill()
if n:data() ~= 0 or n:count() ~= 0 or n[1].__ then error("the nodes are still there") end
for _ in n:subscripts() do error("a child is still there") end
--- nodes, a kill of millions in a transaction that is rolled back: ok
local n = nodedb.node("^big")
local done, reason = pcall(nodedb.tp, function()
  n:kill()
  if n:count() ~= 0 then error("the nodes are still there") end
  nodedb.trollback()
end)
if done or not reason:find("ROLLBACK", 1, true) or n:data() ~= 10 then error("not rolled back") end
--- nodes, counts without end: event time
local n = nodedb.node("^big")
while true do n:count() end
--- nodes, a merge of millions: event time, memory, error
nodedb.merge("^copy", "^big")
nodedb.merge("^copy", "^big")
while true do nodedb.merge("^copy", "^big") end
--- nodes, merges in a transaction: event time, memory, error
nodedb.tp(function()
  for i = 1, 1e9 do nodedb.node("^copy")[i]:merge(nodedb.node("^big")) end
end)
--- nodes, an overlay that outgrows its bound: memory
local x = ("x"):rep(100000)
nodedb.tp(function()
  for i = 1, 1e9 do nodedb.set("^overlay", i, x) end
end)
--- nodes, an overlay that outgrows its bound, under pcall: memory
local x = ("x"):rep(100000)
while true do
  pcall(nodedb.tp, function()
    for i = 1, 1e9 do pcall(nodedb.set, "^overlay", i, x) end
  end)
end
--- nodes, transactions that are thrown away: event time
while true do
  pcall(nodedb.tp, function()
    for i = 1, 1000 do nodedb.set("^overlay", i, i) end
    error("away")
  end)
end
--- nodes, trees in memory that outgrow the limit: memory
local x = ("x"):rep(100000)
for i = 1, 1e9 do nodedb.set("tree", i, x) end
--- nodes, iterations that nobody finishes: event time
local n = nodedb.node("^big")
while true do n:subscripts()() end
--- nodes, iterations that are kept: memory
local n, kept = nodedb.node("^big"), {}
while true do
  local following = n:subscripts()
  following()
  kept[#kept + 1] = following
end
--- nodes, iterations that outlive their transaction: ok
local following
nodedb.tp(function()
  nodedb.set("^small", 1, 1)
  nodedb.set("^small", 2, 2)
  following = nodedb.node("^small"):subscripts()
  following()
end)
nodedb.kill("^small")
nodedb.set("^small", 3, 3)
if following() ~= 3 or following() ~= nil then error("the iteration has not looked again") end
--- nodes, children without end: event time, memory
local n = nodedb.node("^children")
for i = 1, 1e12 do local _ = n[i] end
--- nodes, children that are kept: memory
local n, kept = nodedb.node("^children"), {}
for i = 1, 1e12 do kept[i] = n[i] end
--- nodes, nested transactions: error, stack overflow
local function f() nodedb.tp(f) end
f()
--- nodes, restarts without end: error
nodedb.tp(function() nodedb.trestart() end)
--- nodes, restarts without a limit: event time
nodedb.tp_limits {restarts = math.huge, seconds = math.huge}
nodedb.tp(function() nodedb.trestart() end)
--- nodes, restarts without end, under pcall: event time
while true do pcall(nodedb.tp, function() nodedb.trestart() end) end
--- nodes, a transaction of names that are invalid: ok
for _, names in ipairs({{"^t"}, {5}, {"m", ""}}) do
  if pcall(nodedb.tp, names, function() end) then error("the names are taken") end
  if pcall(nodedb.trollback) then error("a transaction is left open") end
end
--- nodes, use beside a transaction of a coroutine: ok
local co = coroutine.create(function()
  nodedb.tp(function()
    nodedb.set("^beside", 1)
    coroutine.yield()
    pcall(coroutine.yield)
    nodedb.trollback()
  end)
end)
coroutine.resume(co)
local n = nodedb.node("^beside")
local uses = {
  function() return n.__ end, function() n.__ = 2 end, function() n:kill() end, function() nodedb.set("m", 1) end, function() n:incr() end,
  function() nodedb.tp(function() end) end, nodedb.trollback, nodedb.trestart, function() return n:subscripts()() end,
  function() n:lock_incr() end, function() n:settree({a = 1}) end, function() nodedb.load("^beside=1") end, function() n:merge(n.x) end,
}
for i = 1, #uses do
  local ok, problem = pcall(uses[i])
  if ok or not tostring(problem):find("NDB_E_LEVEL", 1, true) then error("use " .. i .. ": " .. tostring(problem)) end
end
coroutine.resume(co)
if pcall(uses[1]) then error("a coroutine that is suspended under pcall") end
coroutine.resume(co)
if coroutine.status(co) ~= "dead" or n.__ ~= nil then error("not rolled back") end
n.__ = 1
n:kill()
--- nodes, a transaction left in a coroutine: ok
local co = coroutine.wrap(function()
  nodedb.tp(function()
    nodedb.set("^left", 1)
    nodedb.node("^left"):lock_incr()
    coroutine.yield()
  end)
end)
co()
--- nodes, a wait for a lock of another session: event time
nodedb.node("^held"):lock_incr()
--- nodes, waits for a lock with timeouts: event time
while true do pcall(nodedb.lock, {nodedb.node("^held").below}, 0.05) end
--- nodes, locks without end: event time, error
for i = 1, 1e9 do nodedb.node("^locks")[i]:lock_incr() end
--- nodes, in the hands of functions that take tables: ok
local n = nodedb.node("^big")
local attempts = {
  function() return next(n) end, function() return ipairs(n)(n, 0) end, function() return unpack(n) end, function() return #n end,
  function() table.insert(n, 1) end, function() table.remove(n) end, function() table.sort(n) end, function() return table.concat(n) end,
  function() return table.unpack(n) end, function() table.move(n, 1, 2, 3) end, function() table.move({1, 2}, 1, 2, 1, n) end,
  function() return rawset(n, 1, 2) end, function() return rawget(n, 1) end, function() return rawlen(n) end,
  function() setmetatable(n, {}) end, function() setmetatable({}, n) end, function() getmetatable(n).__index = {} end,
  function() n.x = 1 end, function() n[1] = 1 end, function() n[n] = 1 end, function() return n[n].__ end, function() return n < n end,
  function() return n .. n end, function() return json.encode(n) end, function() return json.encode({n}) end,
  function() return json.encode({[n] = 1}) end, function() event.x = n end, function() event[n] = 1 end, function() return event[n].x end,
  function() return log.info({n}, nil + n) end, function() return ("x"):rep(n) end, function() return tonumber(n) + 1 end,
  function() return to("nowhere", n) end, function() n.get.set.kill(n) end, function() return n:nothing() end,
  function() n:set(n) end, function() n:set({}) end, function() n:set(event) end, function() n:set(0 / 0) end, function() n:set(1 / 0) end,
  function() nodedb.set("^a", nil, 1) end, function() nodedb.set("^a", {}, {}, {}) end,
  function() nodedb.get("^a", true) end, function() nodedb.get(event) end, function() nodedb.node() end, function() nodedb.node("^") end,
  function() nodedb.get = nil end, function() nodedb.node("^a")[("x"):rep(2000)].__ = 1 end, function() nodedb.open("/tmp") end,
  function() nodedb.DELETE.x = 1 end, function() nodedb.load("^a(1)=") end, function() nodedb.merge(n, n.below) end,
  function() n:settree({a = {b = print}}) end, function() n:settree(n) end, function() local t = {} t.t = t n:settree(t) end,
  function() nodedb.inherit(nodedb.node, {__gc = print}) end, function() nodedb.inherit(nodedb.node, {__index = print}) end,
  function() n:expire(-1) end, function() n:ttl().x() end, function() nodedb.trestart() end,
}
for i = 1, #attempts do
  if pcall(attempts[i]) then error("attempt " .. i .. " succeeded") end
end
if n:data() ~= 10 or type(n) ~= "userdata" or not tostring(n):find("^big", 1, true) then error("the node has changed") end
--- nodes, one that is returned outputs: error
return nodedb.node("^big")
--- nodes, one as metatable, environment and key: ok
local n, t = nodedb.node("^big"), {}
t[n] = n
if t[nodedb.node("^big")] ~= n or next(t) ~= n then error("not the same node") end
setmetatable(t, {__index = function(_, k) return n[k] end})
if t.x ~= n.x then error("not the same child") end
--- nodes, metamethods that call themselves: stack overflow, error
local node = nodedb.inherit(nodedb.node, {__tostring = function(self) return tostring(self) .. "x" end})
return tostring(node("^a"))
--- nodes, a filter that never ends: event time
nodedb.node("^small"):settree({1}, function(node, name, value) return name, value, (function() while true do end end)() end)
--- nodes, dumps and trees of millions: memory, event time
local n = nodedb.node("^big")
local trees = {}
while true do
  trees[#trees + 1] = n:gettree()
  trees[#trees + 1] = n:dump(1e9)
end
--- nodes, loads without end: event time, memory
local text = ("^load(1)=1\n"):rep(100000)
while true do nodedb.load(text) end
--- nodes, long values: event time, memory, error
local x = ("x"):rep(20000000)
while true do nodedb.set("^long", 1, x) nodedb.get("^long", 1) end
--- nodes, increments by every kind of thing: ok
local n = nodedb.node("^increment")
n:kill()
for _, by in ipairs({1, 0.5, -1e15, "3 apples", "", "1E30", true}) do pcall(n.incr, n, by) pcall(function() n:incr(by) end) end
if type(n.__) == "nil" then error("nothing was added") end
--- nodes, documents as trees and subscripts: ok
local n = nodedb.node("^document")
n:settree(event)
nodedb.set("^document", event.list, "value")
if n.sub.x.__ ~= "y" or n.list[1].__ ~= 3 or n.a.__ ~= 1 or n[3][1][2].__ ~= "value" then error(n:dump()) end
--- nodes, numbers that a double cannot hold: ok
local big = json.decode("12345678901234567890123")
nodedb.set("^digits", big, big)
if nodedb.get("^digits", "12345678901234567890123") ~= "12345678901234567890123" then error("digits are lost") end
