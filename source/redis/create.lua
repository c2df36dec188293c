-- Puts the state beside a list that has none, and returns the state.
-- KEYS: state. ARGV: generation, pipeline.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'head', '0', 'pipeline', ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'generation', 'head', 'pipeline')
