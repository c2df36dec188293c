-- Creates the state of a key that has none, and returns the state.
-- KEYS: state. ARGV: generation, pipeline, name of the field with the position.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'generation', ARGV[1], ARGV[3], '0', 'pipeline', ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'generation', ARGV[3], 'pipeline')
