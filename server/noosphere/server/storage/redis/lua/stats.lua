local first = redis.call('XRANGE', LOG, '-', '+', 'COUNT', 1)[1]
local calls = redis.call('ZCARD', SEQUENCES)
  + redis.call('ZCOUNT', UUIDS, '(' .. number(now_ms - UUID_AGE), '+inf')
return {view(), redis.call('ZCARD', ORDER), redis.call('ZLEXCOUNT', ORDER, '-', '(\1'),
  tonumber(redis.call('HGET', HEADER, 'rb') or '0'), redis.call('XLEN', LOG), first and first[2][2] or false,
  log_total, calls, redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or false}
