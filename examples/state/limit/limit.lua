-- Passes at most two alerts a minute for each host, by the times of the events. The next one that passes says
-- how many were held back.
local nodedb, time, window = require "nodedb", require "time", require "window"
local alerts = window.limit("^alerts", {count = 2, seconds = 60, time = "event"})
local held = nodedb.node "^held"

function main(alert)
  if not alerts:take(alert.host, 1, time.parse(alert.time)) then
    held[alert.host]:incr()
    return nil
  end
  alert.held_back = held[alert.host].__
  held[alert.host]:kill()
  return alert
end
