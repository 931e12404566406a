-- ARGV: 4 the time, 5 count.
return redis.call('ZRANGEBYSCORE', DUE, '-inf', ARGV[4], 'LIMIT', 0, ARGV[5])
