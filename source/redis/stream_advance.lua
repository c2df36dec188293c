-- Gives up the first entries of a stream and moves the head past them, if the
-- stream still stands where the caller believes it does. In a new generation
-- positions count again what was ever added, so that what others remove meanwhile
-- does not change them. Returns 1, or 0 when nothing was done.
-- KEYS: stream, state.
-- ARGV: generation, head, count, new generation or '', ID of the last entry to
-- give up, the ID behind it or '' to keep the entries.
local now = redis.call('HMGET', KEYS[2], 'generation', 'head', 'added')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return 0
end
local count, added = tonumber(ARGV[3]), tonumber(now[3] or '0')
local after, behind = ARGV[5], ARGV[6]

local ever, length = 0, 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info, got = {}, redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #got, 2 do info[got[i]] = got[i + 1] end
  ever, length = info['entries-added'], info['length']
end
-- When the last entry is not there any more, others behind it may not be either.
if ARGV[4] == '' and #redis.call('XRANGE', KEYS[1], after, after) == 0
  and not (ever and ever - length == added + count) then
  return 0
end
if length > 0 and behind ~= '' then
  length = length - redis.call('XTRIM', KEYS[1], 'MINID', '=', behind)
end
-- added counts what was ever added up to after: all that is gone, where none is kept.
if ever and #redis.call('XRANGE', KEYS[1], '-', after, 'COUNT', 1) == 0 then
  added = ever - length
else
  added = added + count
end
redis.call('HSET', KEYS[2], 'after', after, 'added', tostring(added))
if ARGV[4] == '' then
  redis.call('HINCRBY', KEYS[2], 'head', count)
else
  redis.call('HSET', KEYS[2], 'generation', ARGV[4], 'head', tostring(added), 'base', tostring(added))
  redis.call('HDEL', KEYS[2], 'holes')
end
return 1
