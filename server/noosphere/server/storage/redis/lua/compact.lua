-- ARGV: 4 the floor that is asked for.
if not exists or deleted then return 0 end
local wanted = ARGV[4] > head and head or ARGV[4]
if wanted <= floor then return 0 end
redis.call('HSET', HEADER, 'fl', wanted)
local kept = number(tonumber(sub(wanted, 1, 6), 16)) .. '-' .. number(tonumber(sub(wanted, 7), 16) + 1)
return redis.call('XTRIM', LOG, 'MINID', kept)
