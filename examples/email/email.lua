-- Turns raw email events into rows: one event comes in, and what main returns
-- goes on to the table. Try it without any server:
--
--   perigee eval email.lua < events.ndjson

-- Code outside main runs once, when the script is loaded.
local class = {
  sent = "delivery", bounce = "delivery",
  open = "engagement", click = "engagement",
}

function main(event)
  -- nil drops an event.
  if event.event_name == "spam" then return nil end

  -- An error sets the event aside with its message, as a dead letter; the
  -- other events go on.
  local domain = event.email:match("@(.+)$")
  if not domain then error("no @ in email " .. event.email) end

  -- New fields are assigned. Fields that are not touched leave byte for byte
  -- as they came.
  event.domain = domain
  event.class = class[event.event_name] or "other"

  -- A string gives up its parts to a pattern.
  local topic, number = event.campaign:match("^(.-)%-(%d+)$")
  event.topic = topic or event.campaign
  event.campaign_number = tonumber(number)

  -- Nested objects are read in place. A missing key reads as nil.
  local meta = event.meta
  if meta then
    event.device = meta.device
    event.first_tag = meta.tags and meta.tags[1]
    event.retried = (meta.attempt or 1) > 1
    event.meta = nil -- a field that is set to nil is removed
  end

  return event
end
