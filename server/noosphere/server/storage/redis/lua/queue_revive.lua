-- ARGV: the ids from 2 on.
local revived = 0
for at = 2, #ARGV do
  local job, priority, dead = place_of(ARGV[at])
  if dead then
    -- Under a new number: leases of its earlier life are not those of this one.
    local record = redis.call('HGET', JOBS, job)
    local id, group = named_in(record)
    drop(job, priority, record, true)
    queue(id, group, priority, sub(record, 26 + #id + #group))
    revived = revived + 1
  end
end
if revived > 0 then changed() end
return {'O', now, revived}
