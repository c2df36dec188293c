-- Acquires or renews leases, unless another worker holds them. Returns the holder of each.
-- KEYS: leases. ARGV: worker, milliseconds.
local holders = {}
for i, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if not holder or holder == ARGV[1] then
    redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
    holder = ARGV[1]
  end
  holders[i] = holder
end
return holders
