-- Creates the state of a stream that has none, and returns the state. Positions count all
-- entries ever added: they are the same again for a stream that was set back to before it
-- had a state. Entries that were removed before do not count as lost.
-- KEYS: state, stream. ARGV: generation, pipeline.
if not redis.REDIS_VERSION_NUM then -- before Redis 7, which counts the entries ever added
  return redis.error_reply('OLDREDIS streams need Redis 7')
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  local gone = 0
  if redis.call('EXISTS', KEYS[2]) == 1 then
    local info, got = {}, redis.call('XINFO', 'STREAM', KEYS[2])
    for i = 1, #got, 2 do info[got[i]] = got[i + 1] end
    gone = info['entries-added'] - info['length']
  end
  redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'head', tostring(gone), 'pipeline', ARGV[2],
    'base', tostring(gone), 'after', '0-0', 'added', tostring(gone))
end
return redis.call('HMGET', KEYS[1], 'generation', 'head', 'pipeline')
