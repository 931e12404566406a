-- ARGV: 4 the call's field, 5 whether to count records (1 or 0), 6 number of keys, the keys, the locks.
local keys, locks, count = {}, {}, tonumber(ARGV[6])
for i = 7, #ARGV do
  if i < 7 + count then keys[#keys + 1] = ARGV[i] else locks[#locks + 1] = ARGV[i] end
end
local call = ARGV[4] ~= '' and redis.call('HGET', CALLS, ARGV[4])
-- Keys that begin with NUL are not counted.
local held = ARGV[5] == '1' and redis.call('ZCARD', ORDER) - redis.call('ZLEXCOUNT', ORDER, '-', '(\1')
return {view(), call, hmget(RECORDS, keys), hmget(FENCES, locks), held}
