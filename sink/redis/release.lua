-- Releases a lease, if the worker holds it. KEYS: lease. ARGV: worker.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
