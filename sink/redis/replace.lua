-- Replaces the ranges that begin in [from, to), or all of them, by the given ones,
-- if the writer is still the owner.
-- KEYS: owner, ranges. ARGV: epoch, from, to or '', then first and value of each.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 'FENCED'
end
if ARGV[3] == '' then
  redis.call('DEL', KEYS[2])
else
  for _, first in ipairs(redis.call('HKEYS', KEYS[2])) do
    if not less(first, ARGV[2]) and less(first, ARGV[3]) then
      redis.call('HDEL', KEYS[2], first)
    end
  end
end
local now = redis.call('TIME')[1]
for i = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], now .. ' ' .. ARGV[i + 1])
end
return 'OK'
