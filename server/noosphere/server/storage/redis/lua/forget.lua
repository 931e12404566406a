-- ARGV: 4 the client that has ended.
local client = ARGV[4]
local gone = redis.call('ZRANGEBYLEX', SEQUENCES, '[' .. client .. '\0', '(' .. client .. '\1')
each('ZREM', SEQUENCES, gone)
for i = 1, #gone do gone[i] = 's' .. gone[i] end
each('HDEL', CALLS, gone)
redis.call('HDEL', CLIENTS, client)
redis.call('ZREM', IDLE, client)
return #gone
