-- Makes or renews a lease, unless somebody else has it, and returns who has.
-- KEYS: lease. ARGV: worker, milliseconds.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
