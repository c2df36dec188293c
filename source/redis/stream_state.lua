-- Returns the state of a stream, and what others did to it: how many entries after the
-- trimmed ones are missing, or -1 when it is another stream.
-- KEYS: stream, state. Returns: generation, head, pipeline, how many entries are missing,
-- how many are left, ID of the last trimmed entry, the positions whose events are lost,
-- and the position at which the generation started.
local now = redis.call('HMGET', KEYS[2], 'generation', 'head', 'pipeline', 'after', 'added', 'holes', 'base')
local after, added = now[4] or '0-0', tonumber(now[5] or '0')

-- 64-bit numbers do not fit Lua's, so they are compared by length and digits.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
local function before(a, b)
  local ams, aseq = string.match(a, '(%d+)-(%d+)')
  local bms, bseq = string.match(b, '(%d+)-(%d+)')
  if ams ~= bms then return less(ams, bms) end
  return less(aseq, bseq)
end

local length, gone = 0, 0
if redis.call('EXISTS', KEYS[1]) == 0 then
  if after ~= '0-0' or added > 0 then gone = -1 end
else
  local info, got = {}, redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #got, 2 do info[got[i]] = got[i + 1] end
  length = info['length']
  local ever, first = info['entries-added'], info['first-entry']
  local kept = first and not before(after, first[1])
  if before(info['last-generated-id'], after) or ever < added then
    gone = -1
  elseif kept then
    length = ever - added
  else
    gone = math.max(-1, ever - length - added)
  end
end
return {now[1] or '', now[2] or '', now[3] or '', gone, length, after, now[6] or '', now[7] or '0'}
