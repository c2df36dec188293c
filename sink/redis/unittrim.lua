-- Forgets up to 1000 notes before a number, never the last one, and returns how many it forgot.
-- Returns FENCED if the unit has another owner.
-- KEYS: unit, notes. ARGV: epoch, number, length of the head before the data of a note.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 'FENCED'
end
local unit = redis.call('HMGET', KEYS[1], 'first', 'last')
local first, bytes = tonumber(unit[1]), 0
local stop = math.min(tonumber(ARGV[2]), tonumber(unit[2]), first + 1000)
for number = first, stop - 1 do
  local field = string.format('%.0f', number)
  bytes = bytes + math.max(0, redis.call('HSTRLEN', KEYS[2], field) - ARGV[3])
  redis.call('HDEL', KEYS[2], field)
end
if stop <= first then
  return 0
end
redis.call('HSET', KEYS[1], 'first', string.format('%.0f', stop))
if bytes > 0 then -- Redis does not take -0
  redis.call('HINCRBY', KEYS[1], 'bytes', string.format('%.0f', -bytes))
end
return stop - first
