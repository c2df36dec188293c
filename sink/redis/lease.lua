-- Acquires or renews a lease, unless another worker holds it. Returns the holder.
-- KEYS: lease. ARGV: worker, milliseconds.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
