-- Makes an owner that of a unit, which fences the one before, and returns the epoch.
-- KEYS: unit, units. ARGV: token, name of the unit.
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'since', redis.call('TIME')[1])
for field, value in pairs({first = '1', last = '0', bytes = '0'}) do
  redis.call('HSETNX', KEYS[1], field, value)
end
redis.call('SADD', KEYS[2], ARGV[2])
return epoch
