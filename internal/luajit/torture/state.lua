--- state, a walk that writes and never ends: event time, memory
local n = nodedb.node("^endless")
n[1].__ = 1
for i in n:subscripts() do n[i + 1].__ = i end
--- state, a delta that outgrows its bound: memory
local x = ("x"):rep(100000)
for i = 1, 1e9 do nodedb.set("^delta", i, x) end
--- state, a delta that outgrows its bound, under pcall: memory
local x = ("x"):rep(100000)
for i = 1, 1e9 do pcall(nodedb.set, "^delta", i, x) end
--- state, transactions that are thrown away: event time
while true do
  pcall(nodedb.tp, function()
    for i = 1, 1000 do nodedb.set("^delta", i, i) end
    error("away")
  end)
end
--- state, a kill of all nodes: ok
local n = nodedb.node("^kill")
if n:data() ~= 10 then error("nothing to kill") end
n:kill()
if n:data() ~= 0 or n:count() ~= 0 then error("the nodes are still there") end
--- state, merges without end: event time, memory, error
for i = 1, 1e9 do nodedb.node("^copy")[i]:merge(nodedb.node("^big")) end
--- state, counts without end: event time
while true do nodedb.node("^big"):count() end
--- state, timers without end: event time, memory
for i = 1, 1e9 do timers.after(i, i) end
--- state, a timer that moves without end: event time
for i = 1, 1e9 do timers.after(i, "same") end
--- state, timers with keys that are no keys: ok
for _, key in ipairs({{}, print, "\255", ("x"):rep(1e6), 0 / 0, 1 / 0}) do
  if pcall(timers.after, 1, key) then error("a timer has the key " .. tostring(key):sub(1, 10)) end
end
for _, at in ipairs({0 / 0, 1 / 0, "1", {}}) do
  if pcall(timers.at, at, "k") then error("a timer is due at " .. tostring(at)) end
end
--- state, windows without end: event time, memory
local seen = window.dedupe("^seen", {seconds = 3600})
for i = 1, 1e9 do seen:first(i) end
--- state, iterations that are kept: memory
local kept = {}
for i = 1, 1e9 do
  kept[i] = nodedb.node("^big"):subscripts()
  kept[i]()
end
--- state, a transaction left in a coroutine: ok
local c = coroutine.create(function()
  nodedb.tp(function()
    nodedb.set("^left", 1, 1)
    coroutine.yield()
  end)
end)
coroutine.resume(c)
--- state, names that belong to Perigee: ok
for _, name in ipairs({"^%timers", "^%origins", "^%"}) do
  if pcall(nodedb.set, name, 1, 1) or pcall(function() return nodedb.node(name)[1].__ end) then error("the script reaches " .. name) end
end
