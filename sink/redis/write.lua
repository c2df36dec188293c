-- Writes rows and the ranges that they came from, if the writer is still the owner,
-- or changes nothing: everything that can fail is checked before the first write.
-- KEYS: owner, ranges, then the list or stream, or a hash for each row.
-- ARGV: epoch, kind, number of ranges, then for each of them first and value;
-- then for a list the documents; for a stream the field and the documents; for
-- hashes, of each row, how many arguments follow for it: fields and values.
-- Returns OK, FENCED, or the rejected rows, each with the type that its key has.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 'FENCED'
end
local kind, ranges = ARGV[2], tonumber(ARGV[3])
local rejected = {}
for i = 3, #KEYS do
  local type = redis.call('TYPE', KEYS[i]).ok
  if type ~= 'none' and type ~= kind then
    rejected[#rejected + 1], rejected[#rejected + 2] = i - 3, type
  end
end
if #rejected > 0 then
  return rejected
end

local at = 4 + 2 * ranges
if kind == 'list' then
  for i = at, #ARGV, 1000 do
    redis.call('RPUSH', KEYS[3], unpack(ARGV, i, math.min(i + 999, #ARGV)))
  end
elseif kind == 'stream' then
  for i = at + 1, #ARGV do
    redis.call('XADD', KEYS[3], '*', ARGV[at], ARGV[i])
  end
else
  for i = 3, #KEYS do
    local last = at + tonumber(ARGV[at])
    for from = at + 1, last, 1000 do
      redis.call('HSET', KEYS[i], unpack(ARGV, from, math.min(from + 999, last)))
    end
    at = last + 1
  end
end
local now = redis.call('TIME')[1]
for i = 1, ranges do
  redis.call('HSET', KEYS[2], ARGV[2 + 2 * i], now .. ' ' .. ARGV[3 + 2 * i])
end
return 'OK'
