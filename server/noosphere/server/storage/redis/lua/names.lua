-- KEYS: 1 the catalogue. ARGV: 1 and 2 bounds, 3 count.
if ONLY and not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY a replica')
end
return redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
