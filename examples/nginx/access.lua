-- Makes an event of a line of nginx's access log in its "combined" format.
local pattern = '^(%S+) %S+ (%S+) %[([^%]]+)%] "(%u+) (%S+)[^"]*" (%d+) (%d+) "([^"]*)" "([^"]*)"'

local months = {
  Jan = 1, Feb = 2, Mar = 3, Apr = 4, May = 5, Jun = 6, Jul = 7, Aug = 8, Sep = 9, Oct = 10, Nov = 11, Dec = 12,
}

-- Turns 02/Jan/2026:03:04:05 +0100 into 2026-01-02T03:04:05+01:00.
local function timestamp(text)
  local day, month, year, clock, hours, minutes = text:match("^(%d+)/(%a+)/(%d+):(%S+) ([+-]%d%d)(%d%d)$")
  return string.format("%s-%02d-%sT%s%s:%s", year, months[month], day, clock, hours, minutes)
end

function main(event)
  local address, user, time, method, path, status, bytes, referer, agent = event.line:match(pattern)
  if not address then
    error("not a line of the combined format")
  end
  return {
    time = timestamp(time), address = address, user = user ~= "-" and user or nil,
    method = method, path = path, status = tonumber(status), bytes = tonumber(bytes),
    referer = referer ~= "-" and referer or nil, agent = agent,
  }
end
