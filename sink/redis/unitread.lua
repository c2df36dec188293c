-- Returns owner, first, last and bytes of a unit, and then notes from a number on, without a gap,
-- up to 1000 of them or some megabytes. Returns FENCED if the unit has another owner. A reader that
-- does not own it passes "" as the epoch, and gets MISSING if there is no unit.
-- KEYS: unit, notes. ARGV: epoch, first and last number to return.
if ARGV[1] == '' then
  if redis.call('EXISTS', KEYS[1]) == 0 then
    return 'MISSING'
  end
elseif redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 'FENCED'
end
local reply = redis.call('HMGET', KEYS[1], 'owner', 'first', 'last', 'bytes')
local first, size = tonumber(ARGV[2]), 0
for number = first, math.min(tonumber(ARGV[3]), first + 999) do
  local note = redis.call('HGET', KEYS[2], string.format('%.0f', number))
  if not note or size > 8388608 then break end
  reply[#reply + 1] = note
  size = size + #note
end
return reply
