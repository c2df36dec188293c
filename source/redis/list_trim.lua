-- Removes the first items of a list and moves the head past them, if the state is the
-- expected one. In a new generation positions count from 0 again. Returns 1, or 0 when
-- nothing was done.
-- KEYS: list, state. ARGV: generation, head, count, new generation or ''.
local now = redis.call('HMGET', KEYS[2], 'generation', 'head')
local count = tonumber(ARGV[3])
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] or redis.call('LLEN', KEYS[1]) < count then
  return 0
end
if count > 0 then
  redis.call('LTRIM', KEYS[1], count, -1)
end
if ARGV[4] == '' then
  redis.call('HINCRBY', KEYS[2], 'head', count)
else
  redis.call('HSET', KEYS[2], 'generation', ARGV[4], 'head', '0')
end
return 1
