-- The jobs of bench-nodes for LuaJIT and Lua 5.4, as a user of lua-yottadb writes them.
--
--   lua bench.lua FOLDER JOB COUNT [NODES [BATCH]]
--
-- A job calls start when its time begins and returns the number of operations and what it
-- found, by which Go knows that both sides did the same. Go takes the time, because plain
-- Lua has no clock but that of the processor. A transaction has BATCH operations.

local nodedb = require "nodedb"

local jobs = {}

local function start()
  io.write("start\n")
  io.flush()
end

-- inTransactions calls body(first, last, turn, lastTurn) in a transaction for each batch of
-- the operations: on nodes first to last, in turns that are counted from 1. Like M's, the
-- transactions do not wait for the disk; unlike M, the job waits for it once, at its end.
local function inTransactions(count, nodes, batch, body)
  local per = math.min(nodes, batch)
  for done = 0, count - 1, batch do
    local first, turn = done % nodes + 1, math.floor(done / nodes) + 1
    nodedb.tp("BATCH", body, first, first + per - 1, turn, turn + batch / per - 1)
  end
  nodedb.sync()
end

---- bulk load ----

function jobs.loadInts(count, _, batch)
  start()
  inTransactions(count, count, batch, function(first, last)
    for i = first, last do nodedb.set("^ints", "lvd", i, 1000000000 + i) end
  end)
  return count, nodedb.node("^ints", "lvd"):subscripts(true)()
end

function jobs.loadStrings(count, _, batch)
  start()
  inTransactions(count, count, batch, function(first, last)
    for i = first, last do nodedb.set("^strings", "lvd", string.format("rec%08d", i), 1000000000 + i) end
  end)
  return count, nodedb.node("^strings", "lvd"):subscripts(true)()
end

function jobs.loadDeep(count, _, batch)
  start()
  inTransactions(count, count, batch, function(first, last)
    for i = first, last do nodedb.set("^deep", "one", "two", "three", "four", i, 1000000000 + i) end
  end)
  return count, nodedb.node("^deep", "one", "two", "three", "four"):subscripts(true)()
end

---- walks: the nodes are read once before the time starts ----

local function walk(top, count)
  local last
  for subscript in top:subscripts() do last = subscript end
  start()
  for subscript in top:subscripts() do last = subscript end
  return count, last
end

local function walkValues(top, count)
  local last
  for _, value in top:values() do last = value end
  start()
  for _, value in top:values() do last = value end
  return count, last
end

-- walkNodes takes a complete node in each step, which may be kept.
local function walkNodes(top, count)
  local last
  for node in top:pairs({limit = count}) do last = node end
  start()
  for node in top:pairs({limit = count}) do last = node end
  return count, last.__
end

function jobs.walkInts(count) return walk(nodedb.node("^ints", "lvd"), count) end
function jobs.walkIntValues(count) return walkValues(nodedb.node("^ints", "lvd"), count) end
function jobs.walkIntNodes(count) return walkNodes(nodedb.node("^ints", "lvd"), count) end
function jobs.walkStrings(count) return walk(nodedb.node("^strings", "lvd"), count) end
function jobs.walkStringValues(count) return walkValues(nodedb.node("^strings", "lvd"), count) end
function jobs.walkStringNodes(count) return walkNodes(nodedb.node("^strings", "lvd"), count) end

---- get, set and increment on nodes that are five levels deep ----

local four = nodedb.node("^deep", "one", "two", "three", "four")

-- holdNodes returns the nodes, after it set their first values. The disk has them then: the
-- job that follows waits for its own changes alone.
local function holdNodes(count)
  local held = {}
  nodedb.tp(function()
    for i = 1, count do
      held[i] = four[i]
      held[i].__ = 1000000000 + i
    end
  end)
  nodedb.sync()
  return held
end

local function get(held, first, last, turn, lastTurn)
  local value
  for _ = turn, lastTurn do
    for i = first, last do value = held[i].__ end
  end
  return value
end

local function set(held, first, last, turn, lastTurn)
  for number = turn, lastTurn do
    for i = first, last do held[i].__ = 1000000000 + number end
  end
end

local function incr(held, first, last, turn, lastTurn)
  local value
  for _ = turn, lastTurn do
    for i = first, last do value = held[i]:__incr() end
  end
  return value
end

-- Of many nodes nobody holds the objects: they are named by their subscript.

local function getMany(first, last, turn, lastTurn)
  local value
  for _ = turn, lastTurn do
    for i = first, last do value = nodedb.get(four, i) end
  end
  return value
end

local function setMany(first, last, turn, lastTurn)
  for number = turn, lastTurn do
    for i = first, last do nodedb.set(four, i, 1000000000 + number) end
  end
end

local function incrMany(first, last, turn, lastTurn)
  local value
  for _ = turn, lastTurn do
    for i = first, last do value = nodedb.incr(four, i, 1) end
  end
  return value
end

function jobs.get(count, nodes)
  local held = holdNodes(nodes)
  start()
  return count, get(held, 1, nodes, 1, count / nodes)
end

function jobs.getTransactions(count, nodes, batch)
  local held = holdNodes(nodes)
  local value
  start()
  inTransactions(count, nodes, batch, function(...) value = get(held, ...) end)
  return count, value
end

function jobs.set(count, nodes)
  local held = holdNodes(nodes)
  start()
  set(held, 1, nodes, 1, count / nodes)
  nodedb.sync()
  return count, held[nodes].__
end

function jobs.setTransactions(count, nodes, batch)
  local held = holdNodes(nodes)
  start()
  inTransactions(count, nodes, batch, function(...) set(held, ...) end)
  return count, held[nodes].__
end

function jobs.incrTransactions(count, nodes, batch)
  local held = holdNodes(nodes)
  local value
  start()
  inTransactions(count, nodes, batch, function(...) value = incr(held, ...) end)
  return count, value
end

-- setFirst sets the first values of many nodes.
local function setFirst(nodes)
  nodedb.tp(function()
    for i = 1, nodes do nodedb.set(four, i, 1000000000 + i) end
  end)
end

function jobs.getMany(count, nodes, batch)
  setFirst(nodes)
  local value
  start()
  inTransactions(count, nodes, batch, function(...) value = getMany(...) end)
  return count, value
end

function jobs.setMany(count, nodes, batch)
  setFirst(nodes)
  start()
  inTransactions(count, nodes, batch, setMany)
  return count, nodedb.get(four, nodes)
end

function jobs.incrMany(count, nodes, batch)
  setFirst(nodes)
  local value
  start()
  inTransactions(count, nodes, batch, function(...) value = incrMany(...) end)
  return count, value
end

---- growth: nodes far from each other, one after the other ----

-- far calls body(i) for count numbers up to nodes. Each is two fifths of the nodes away from
-- the one before, and all differ while count is at most nodes.
local function far(count, nodes, i, body)
  local step = math.floor(nodes * 0.381966) + 1
  while (nodes % 2 == 0 and step % 2 == 0) or (nodes % 5 == 0 and step % 5 == 0) do step = step + 1 end
  for _ = 1, count do
    body(i + 1)
    i = (i + step) % nodes
  end
  return i
end

function jobs.growLoad(count, _, batch)
  start()
  inTransactions(count, count, batch, function(first, last)
    for i = first, last do nodedb.set("^grow", i, 1000000000 + i) end
  end)
  return count, nodedb.get("^grow", count)
end

function jobs.growWalk(count) return walk(nodedb.node("^grow"), count) end

function jobs.growGet(count, nodes)
  local value
  local function get_one(i) value = nodedb.get("^grow", i) end
  local i = far(count, nodes, 0, get_one) -- a warm-up
  start()
  far(count, nodes, i, get_one)
  return count, value
end

function jobs.growSet(count, nodes, batch)
  local i = 0
  local function set_one(k) nodedb.set("^grow", k, 2000000000 + k) end
  start()
  for _ = 1, count / batch do
    nodedb.tp("BATCH", function() i = far(batch, nodes, i, set_one) end)
  end
  nodedb.sync()
  return count, nodedb.get("^grow", 1)
end

---- paths ----

local function walkPath(root, count)
  local kept = {}
  for i = 1, 16 do kept[i] = root.country.person[i].gender end
  start()
  for _ = 1, count / 16 do
    for i = 1, 16 do kept[i] = root.country.person[i].gender end
  end
  return count, #kept
end

function jobs.dotPath(count) return walkPath(nodedb.node("^people"), count) end

function jobs.plainTable(count)
  local person = {}
  for i = 1, 16 do person[i] = {gender = {}} end
  return walkPath({country = {person = person}}, count)
end

---- memory and identity ----

-- peakGrowth returns the kilobytes by which the heap grew at most while make made children,
-- with the collector at its normal pace.
local function peakGrowth(count, make)
  make(1)
  collectgarbage()
  collectgarbage()
  local before = collectgarbage("count")
  local peak = before
  for i = 1, count do
    make(i)
    if i % 1000 == 0 then peak = math.max(peak, collectgarbage("count")) end
  end
  return peak - before
end

function jobs.leakNumbers(count)
  local parent = nodedb.node("^leak")
  start()
  return count, peakGrowth(count, function(i) return parent[i].name end)
end

function jobs.leakNames(count)
  local parent = nodedb.node("^leak")
  start()
  return count, peakGrowth(count, function(i) return parent["child" .. i].name end)
end

function jobs.identity(count)
  local root = nodedb.node("^identity")
  local kept, same = {}, 0
  start()
  for i = 1, count do kept[i] = root["child" .. i].name end
  for _ = 1, 4 do collectgarbage() end
  for i = 1, count do
    if rawequal(kept[i], root["child" .. i].name) then same = same + 1 end
  end
  return count, same
end

local folder, job, count, nodes, batch = ...
nodedb.open(folder)
local operations, found = jobs[job](tonumber(count), tonumber(nodes), tonumber(batch))
if type(found) == "number" then found = string.format("%.14g", found) end
io.write(operations, " ", found, "\n")
