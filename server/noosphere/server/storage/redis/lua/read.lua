-- ARGV: 4 the call's field, 5 number of keys, the keys, the locks.
local keys, locks, count = {}, {}, tonumber(ARGV[5])
for i = 6, #ARGV do
  if i < 6 + count then keys[#keys + 1] = ARGV[i] else locks[#locks + 1] = ARGV[i] end
end
local call = ARGV[4] ~= '' and redis.call('HGET', CALLS, ARGV[4])
return {view(), call, hmget(RECORDS, keys), hmget(FENCES, locks)}
