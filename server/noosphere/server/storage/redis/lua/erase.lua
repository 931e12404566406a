-- What was logged, and what calls meant and were answered, goes; that there were such calls stays.
if not exists or deleted then return {view(), 0, 0} end
local logged, emptied = redis.call('XLEN', LOG), 0
redis.call('HSET', HEADER, 'fl', head)
redis.call('UNLINK', LOG)
local calls = redis.call('HGETALL', CALLS)
for i = 1, #calls, 2 do
  if #calls[i + 1] > 36 then
    redis.call('HSET', CALLS, calls[i], sub(calls[i + 1], 1, 32) .. '0000')
    emptied = emptied + 1
  end
end
return {view(), logged, emptied}
