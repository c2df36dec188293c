-- Returns events by their absolute position, which counts on as the list is trimmed.
-- KEYS[1]: the list. ARGV: first position that is wanted, how many.
local head = tonumber(redis.call('GET', KEYS[1] .. ':head') or '0')
local from = math.max(0, tonumber(ARGV[1]) - head)
local found = {head, redis.call('LLEN', KEYS[1])}
if tonumber(ARGV[2]) > 0 then
  local events = redis.call('LRANGE', KEYS[1], from, from + ARGV[2] - 1)
  for i = 1, #events do found[i + 2] = events[i] end
end
return found
