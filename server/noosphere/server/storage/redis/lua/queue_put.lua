-- ARGV: 2 most jobs, 3 most bytes, then of each job: id, group, priority, body.
local absent, replaced, bytes = {}, {}, 0
for at = 4, #ARGV, 4 do
  local job, priority, dead = place_of(ARGV[at])
  if not job or dead then
    absent[#absent + 1] = at
    bytes = bytes + 25 + #ARGV[at] + #ARGV[at + 1] + #ARGV[at + 3]
  end
  if dead then
    local record = redis.call('HGET', JOBS, job)
    replaced[#replaced + 1] = {job, priority, record}
    bytes = bytes - #record
  end
end
local jobs = redis.call('HLEN', IDS) + #absent - #replaced
if jobs > tonumber(ARGV[2]) and #absent > #replaced then return {'L', now, jobs} end
bytes = tonumber(redis.call('HGET', HEADER, 'b') or '0') + bytes
if bytes > tonumber(ARGV[3]) and #absent > 0 then return {'B', now, bytes} end
for _, one in ipairs(replaced) do drop(one[1], one[2], one[3], true) end
for _, at in ipairs(absent) do queue(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) end
if #absent > 0 then changed() end
return {'O', now}
