-- Releases those leases that the worker holds. KEYS: leases. ARGV: worker.
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    redis.call('DEL', key)
  end
end
