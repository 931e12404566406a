-- ARGV: 4 the copy's word, 5 the first key to tell of, as a bound, 6 most records, 7 most bytes, 8 how long a copy lasts.
local copy = stem .. ':x' .. ARGV[4]
-- Another process may have taken its place, which knows nothing of it.
if redis.call('EXISTS', copy .. ':o') == 0 then return {'N'} end
for _, part in ipairs({':k', ':o', ':d'}) do redis.call('EXPIRE', copy .. part, ARGV[8]) end
local keys, bytes = redis.call('ZRANGEBYLEX', copy .. ':o', ARGV[5], '+', 'LIMIT', 0, ARGV[6]), 0
for i = 1, #keys do
  bytes = bytes + #keys[i] + redis.call('HSTRLEN', copy .. ':k', keys[i])
  if bytes > tonumber(ARGV[7]) then
    for rest = #keys, i + 1, -1 do keys[rest] = nil end
    break
  end
end
local dues = {}
if #keys > 0 then dues = redis.call('ZMSCORE', copy .. ':d', unpack(keys)) end
return {'O', keys, hmget(copy .. ':k', keys), dues}
