-- Records lost entries, if the state is the expected one. Returns 1, or 0 when nothing was
-- done.
-- KEYS: state. ARGV: generation, head, number of lost entries, the positions whose events
-- are lost, number of lost entries without a known position.
local now = redis.call('HMGET', KEYS[1], 'generation', 'head')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return 0
end
redis.call('HINCRBY', KEYS[1], 'lost', ARGV[3])
redis.call('HSET', KEYS[1], 'holes', ARGV[4])
redis.call('HINCRBY', KEYS[1], 'added', ARGV[5])
return 1
