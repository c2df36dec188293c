-- Passes the first event of each id within an hour, by the times of the events. An event that is too old to
-- tell passes with a mark.
local time, window = require "time", require "window"
local ids = window.dedupe("^ids", {seconds = 3600, time = "event", late = 600})

function main(event)
  local first = ids:first(event.id, time.parse(event.time))
  if first == false then return nil end
  if first == nil then event.too_late = true end
  return event
end
