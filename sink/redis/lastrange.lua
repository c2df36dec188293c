-- Finds the last range that begins at a position or before it.
-- KEYS: owner, ranges. ARGV: epoch, position. Returns its first position and number
-- of events; an empty array when none does; FENCED when the writer is not the owner
-- any more.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 'FENCED'
end

local last
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then
  last = ARGV[2]
else
  for _, first in ipairs(redis.call('HKEYS', KEYS[2])) do
    if less(first, ARGV[2]) and (not last or less(last, first)) then last = first end
  end
end
if not last then
  return {}
end
return {last, string.match(redis.call('HGET', KEYS[2], last), '^%d+ (%d+)')}
