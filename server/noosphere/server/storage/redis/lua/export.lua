-- ARGV: 4 a word of its own for the copy, 5 most records and 6 most bytes that are told at once, 7 how long a copy lasts.
if not exists then return {'N'} end
if deleted then return {'O', view(), {}, {}, {}, {}} end
local fences = redis.call('HGETALL', FENCES)
local bytes = tonumber(redis.call('HGET', HEADER, 'rb') or '0')
if redis.call('ZCARD', ORDER) <= tonumber(ARGV[5]) and bytes <= tonumber(ARGV[6]) then
  local keys = redis.call('ZRANGEBYLEX', ORDER, '-', '+')
  local dues = {}
  if #keys > 0 then dues = redis.call('ZMSCORE', DUE, unpack(keys)) end
  return {'O', view(), fences, keys, hmget(RECORDS, keys), dues}
end
-- Too much for one answer: what is copied in this step is read in others.
for _, part in ipairs({':k', ':o', ':d'}) do
  local copy = stem .. ':x' .. ARGV[4] .. part
  redis.call('COPY', stem .. part, copy, 'REPLACE')
  redis.call('EXPIRE', copy, ARGV[7])
end
return {'C', view(), fences}
