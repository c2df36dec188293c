-- Writes rows, the ranges that they came from, and the note of a unit if there is one, if the
-- writer is still the owner, or changes nothing: everything that can fail is checked before the
-- first write.
-- KEYS: owner, ranges; with a note, unit and notes; then lists or streams, or a hash for each row.
-- ARGV: epoch, kind, number of ranges, epoch of the unit or '' without a note;
-- with a note its number, the number before, its value and the bytes of its data;
-- for each range first and value; for streams the field; then for each list or stream, or each hash,
-- how many arguments follow for it: documents, or fields and values.
-- Returns OK, FENCED, or the rejected rows, each with the type that its key has. If the note is not
-- the next, returns LAST, the number of the last note and what its value begins with.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 'FENCED'
end
local kind, ranges = ARGV[2], tonumber(ARGV[3])
local noted = ARGV[4] ~= ''
local target, at = 3, 5 -- of the first key of the target, and of the first range
if noted then
  target, at = 5, 9
  local unit = redis.call('HMGET', KEYS[3], 'epoch', 'last')
  if unit[1] ~= ARGV[4] then
    return 'FENCED'
  end
  redis.call('HLEN', KEYS[4]) -- fails if it is no hash
  if unit[2] ~= ARGV[6] then
    local note = redis.call('HGET', KEYS[4], unit[2]) or ''
    return 'LAST ' .. unit[2] .. ' ' .. string.sub(note, 1, 16)
  end
end
local rejected = {}
for i = target, #KEYS do
  local type = redis.call('TYPE', KEYS[i]).ok
  if type ~= 'none' and type ~= kind then
    rejected[#rejected + 1], rejected[#rejected + 2] = i - target, type
  end
end
if #rejected > 0 then
  return rejected
end
local row = at + 2 * ranges
local field = ARGV[row]
if kind == 'stream' then
  row = row + 1
end
for i = target, #KEYS do
  local last = row + tonumber(ARGV[row])
  if kind == 'stream' then
    for n = row + 1, last do
      redis.call('XADD', KEYS[i], '*', field, ARGV[n])
    end
  else
    for from = row + 1, last, 1000 do
      redis.call(kind == 'list' and 'RPUSH' or 'HSET', KEYS[i], unpack(ARGV, from, math.min(from + 999, last)))
    end
  end
  row = last + 1
end
local now = redis.call('TIME')[1]
for i = at, at + 2 * ranges - 1, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], now .. ' ' .. ARGV[i + 1])
end
if noted then
  redis.call('HSET', KEYS[4], ARGV[5], ARGV[7])
  redis.call('HSET', KEYS[3], 'last', ARGV[5])
  redis.call('HINCRBY', KEYS[3], 'bytes', ARGV[8])
end
return 'OK'
