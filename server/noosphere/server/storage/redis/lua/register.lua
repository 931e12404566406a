-- KEYS: 1 the catalogue. ARGV: 1 the entry, 2 and 3 bounds of entries of generations that nobody asks for any more.
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('ZREMRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3])
return 1
