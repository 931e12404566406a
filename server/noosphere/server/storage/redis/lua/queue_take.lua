-- ARGV: 2 worker, 3 most jobs, 4 how long the leases last, 5 and 6 priorities from and to, 7 most bytes.
local consumer, room, until_ms = EPOCH .. ':' .. ARGV[2], tonumber(ARGV[3]), number(now_ms + ARGV[4])
local bytes_max = tonumber(ARGV[7])
local taken, bytes = {}, 0

local function take(job, priority, attempt)
  redis.call('ZADD', due_of(priority), until_ms, job)
  local record = redis.call('HGET', JOBS, job)
  taken[#taken + 1] = {job, attempt, record}
  bytes = bytes + #record
end

for priority = tonumber(ARGV[5]), tonumber(ARGV[6]) do
  local stream = stream_of(priority)
  -- What was taken before stands before what never was; of more than these, which are the oldest is not known.
  local due = redis.call('ZRANGEBYSCORE', due_of(priority), '-inf', number(now_ms), 'LIMIT', 0, LOOKED_AT)
  table.sort(due)
  for _, job in ipairs(due) do
    if #taken >= room or bytes > bytes_max then break end
    local _, attempt = taken_by(job, priority)
    redis.call('XCLAIM', stream, WORKERS, consumer, 0, entry_of(job), 'RETRYCOUNT', attempt + 1, 'JUSTID')
    take(job, priority, attempt + 1)
  end
  while #taken < room and bytes <= bytes_max do
    -- A few at a time: what is read is taken, even if there is no room for its words.
    local count = math.min(room - #taken, 16)
    local read = redis.call('XREADGROUP', 'GROUP', WORKERS, consumer, 'COUNT', count, 'STREAMS', stream, '>')
    if not read then break end
    for _, entry in ipairs(read[1][2]) do take(entry[2][2], priority, 1) end
  end
end
if #taken > 0 then changed() end
return {'O', now, taken}
