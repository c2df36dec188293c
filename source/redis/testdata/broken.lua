return redis.call(
