-- ARGV: 2 a group, or empty for the dead of all, 3 after, 4 count, 5 most bytes.
local key, prefix = DEAD, ''
if ARGV[2] ~= '' then key, prefix = GROUPS, prefix_of(ARGV[2]) end
local low = ARGV[3] == '' and '[' .. prefix or '(' .. prefix .. ARGV[3]
-- No UTF-8 text has this byte.
local ids = redis.call('ZRANGEBYLEX', key, prefix == '' and ARGV[3] == '' and '-' or low, '(' .. prefix .. '\255',
  'LIMIT', 0, ARGV[4])
for i = 1, #ids do ids[i] = sub(ids[i], #prefix + 1) end
local found, cut = page_of(ids, tonumber(ARGV[5]))
return {'O', now, found, cut}
