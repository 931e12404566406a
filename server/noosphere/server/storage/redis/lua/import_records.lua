-- ARGV: from 4 on, of each record: key, revision, until when it lives, when it is due (or empty), data.
local stored, ordered, due, grown = {}, {}, {}, 0
for at = 4, #ARGV, 5 do
  local key, data = ARGV[at], ARGV[at + 4]
  if redis.call('HSTRLEN', RECORDS, key) == 0 then grown = grown + #key + #data end
  stored[#stored + 1] = key
  stored[#stored + 1] = ARGV[at + 1] .. ARGV[at + 2] .. data
  ordered[#ordered + 1] = 0
  ordered[#ordered + 1] = key
  if ARGV[at + 3] ~= '' then
    due[#due + 1] = ARGV[at + 3]
    due[#due + 1] = key
  end
end
each('HSET', RECORDS, stored)
each('ZADD', ORDER, ordered)
each('ZADD', DUE, due)
if grown > 0 then redis.call('HINCRBY', HEADER, 'rb', number(grown)) end
return 1
