-- Joins the sends of mails with their opens within a day, by the times of the events. A send without an open
-- becomes a row when the day is over; an open that has no send is dropped.
local time, window = require "time", require "window"
local mails = window.join("^mails", {seconds = 86400, time = "event", late = 600, idle = 300})

local function unopened(rows)
  for _, alone in ipairs(mails:completed()) do
    if alone.side == "left" then rows[#rows + 1] = {mail = alone.key, to = alone.value.to, opened = false} end
  end
  return rows
end

function main(event)
  local at, rows = time.parse(event.time), {}
  local side = event.event == "send" and "left" or "right"
  for _, other in ipairs(mails:add(side, event.mail, {to = event.to, at = at}, at) or {}) do
    rows[#rows + 1] = {mail = event.mail, to = event.to or other.to, opened = true, after = math.abs(at - other.at)}
  end
  return unopened(rows)
end

function timer() return unopened({}) end
