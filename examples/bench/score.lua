-- Looks the domain of an address up, and scores the event. A script to try
-- perigee bench on: it waits, and three of its lines cannot be compiled.
local directory = require "directory"

local weights = {open = 1, click = 3, bounce = -5}

function main(event)
  local domain = event.email:match("@(.+)$")
  if not domain then error("no domain in " .. event.email) end
  local score = 0
  for name, weight in pairs(weights) do
    if event.event_name == name then score = score + weight end
  end
  local label = function(tag) return tag .. ":" .. score end
  local tags = event.tags
  for i = 1, #tags do tags[i] = label(tags[i]) end
  local found, company = pcall(directory.lookup, domain)
  event.company = found and company or nil
  event.score = score
  return event
end
