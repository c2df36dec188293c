-- Removes the first entries of a stream and moves the head past them, if the state is the
-- expected one. In a new generation positions count all entries ever added, so that
-- entries that others remove meanwhile do not change them. Returns 1, or 0 when nothing
-- was done.
-- KEYS: stream, state.
-- ARGV: generation, head, count, new generation or '', ID of the last entry to
-- remove, the ID after it or '' to keep the entries.
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
-- If the last entry is missing, entries after it may be missing too.
if ARGV[4] == '' and #redis.call('XRANGE', KEYS[1], after, after) == 0
  and ever - length ~= added + count then
  return 0
end
if length > 0 and behind ~= '' then
  length = length - redis.call('XTRIM', KEYS[1], 'MINID', '=', behind)
end
-- added counts all entries ever added up to after.
if #redis.call('XRANGE', KEYS[1], '-', after, 'COUNT', 1) == 0 then
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
