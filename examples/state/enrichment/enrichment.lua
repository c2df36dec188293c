-- Adds the profile of the user to each order. Profiles come in the same stream and may change; an order that
-- precedes the profile waits for it.
local json, nodedb = require "json", require "nodedb"
local profiles, waiting = nodedb.node "^profiles", nodedb.node "^waiting"

local function enrich(order)
  local profile = profiles[order.user]
  order.name = profile.name.__
  order.country = profile.country.__
  return order
end

function main(event)
  local user = event.user
  if event.amount then
    if profiles[user]:data() > 0 then return enrich(event) end
    waiting[user][waiting.number:incr()].__ = json.encode(event)
    return nil
  end
  profiles[user].name.__, profiles[user].country.__ = event.name, event.country
  local rows = {}
  for _, order in waiting[user]:pairs() do rows[#rows + 1] = enrich(json.decode(order)) end
  waiting[user]:kill()
  return rows
end
