-- KEYS: 1 the catalogue. ARGV: 1 and 2 bounds, 3 count.
return redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
