-- ARGV: 2 a group or empty, 3 after, 4 count; without a group, the ids from 5 on.
local ids, removed = {}, 0
if ARGV[2] ~= '' then
  local prefix = prefix_of(ARGV[2])
  local low = ARGV[3] == '' and '[' .. prefix or '(' .. prefix .. ARGV[3]
  ids = redis.call('ZRANGEBYLEX', GROUPS, low, '(' .. prefix .. '\255', 'LIMIT', 0, ARGV[4])
  for i = 1, #ids do ids[i] = sub(ids[i], #prefix + 1) end
else
  for at = 5, #ARGV do ids[#ids + 1] = ARGV[at] end
end
for _, id in ipairs(ids) do
  local job, priority, dead = place_of(id)
  if job then
    drop(job, priority, redis.call('HGET', JOBS, job), dead)
    removed = removed + 1
  end
end
if removed > 0 then changed() end
return {'O', now, removed, #ids > 0 and ids[#ids] or false}
