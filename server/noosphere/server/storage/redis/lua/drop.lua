-- ARGV: 4 the head that is expected, or empty.
if deleted then return {'F', 'deleted', name, head} end
if ARGV[4] ~= '' and ARGV[4] ~= head then return {'F', 'key', '', head} end
if not exists then return {'D', head, 0} end
local count = redis.call('ZCARD', ORDER) - redis.call('ZLEXCOUNT', ORDER, '-', '(\1')
redis.call('HSET', HEADER, 'x', '2', 'fl', head, 't', now)
redis.call('HDEL', HEADER, 'rb', 'lt', 'sf')
redis.call('UNLINK', RECORDS, ORDER, DUE, STAMPS, LOG, FENCES, CALLS, SEQUENCES, CLIENTS, UUIDS, IDLE)
redis.call('SPUBLISH', stem .. HEADS, head)
return {'D', head, count}
