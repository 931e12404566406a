-- ARGV: 4 the call's field, 5 whether to count records (1 or 0), 6 most bytes of all records (0: any), 7 number of keys,
-- the keys, the locks.
local keys, locks, count, room = {}, {}, tonumber(ARGV[7]), tonumber(ARGV[6])
for i = 8, #ARGV do
  if i < 8 + count then keys[#keys + 1] = ARGV[i] else locks[#locks + 1] = ARGV[i] end
end
if room > 0 then
  -- Of more, the answer would not arrive in time, and would hold up everybody else's.
  local size = 0
  for i = 1, #keys do size = size + redis.call('HSTRLEN', RECORDS, keys[i]) end
  if size > room then return {size} end
end
local call = ARGV[4] ~= '' and redis.call('HGET', CALLS, ARGV[4])
-- Keys that begin with NUL are not counted.
local held = ARGV[5] == '1' and redis.call('ZCARD', ORDER) - redis.call('ZLEXCOUNT', ORDER, '-', '(\1')
return {view(), call, hmget(RECORDS, keys), hmget(FENCES, locks), held}
