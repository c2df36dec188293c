-- Turns page views into sessions: a session ends when its user has been away for 30 minutes, by the times of
-- the events. Events may be up to 60 s out of order; when none arrives for 5 minutes, the sessions end too.
local time, window = require "time", require "window"
local sessions = window.session("^sessions", {gap = 1800, time = "event", late = 60, idle = 300})

local function ended()
  local rows = {}
  for _, s in ipairs(sessions:completed()) do
    rows[#rows + 1] = {user = s.key, entry = s.first, exit = s.last, pages = s.count,
      began = time.format(s.from), minutes = (s.to - s.from) / 60}
  end
  return rows
end

function main(view)
  if not sessions:add(view.user, view.page, time.parse(view.time)) then
    return {user = view.user, late = view.page}
  end
  return ended()
end

function timer() return ended() end
