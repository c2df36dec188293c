-- Makes a writer the owner of a partition, which fences the one before.
-- KEYS: owner, ranges, partitions. ARGV: token, partition, 1 to take over only from
-- the token itself. Returns the epoch, the time and all ranges; an empty array when
-- the token is not the owner.
if ARGV[3] == '1' and redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return {}
end
local now = redis.call('TIME')[1]
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'since', now)
redis.call('SADD', KEYS[3], ARGV[2])
return {epoch, tonumber(now), redis.call('HGETALL', KEYS[2])}
