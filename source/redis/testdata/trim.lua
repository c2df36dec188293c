-- Gives up the events before a position, unless somebody else already has.
-- KEYS[1]: the list. ARGV: the position, the head that the caller believes in.
-- Returns the head that there is then.
local head = tonumber(redis.call('GET', KEYS[1] .. ':head') or '0')
local to = tonumber(ARGV[1])
if head ~= tonumber(ARGV[2]) or to < head then
  return head
end
redis.call('LTRIM', KEYS[1], to - head, -1)
redis.call('SET', KEYS[1] .. ':head', to)
return to
