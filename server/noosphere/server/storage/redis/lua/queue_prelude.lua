-- Every script of the fact queue begins with this, after the line that sets EPOCH (6 hex digits) and HEADS.
-- KEYS[1] is the stem of all its keys; its hash tag keeps them on one node.
-- ARGV: 1 the latest time that the caller has seen, as 16 hex digits.
-- A job has a number, 16 hex digits: the epoch in which it was queued, then a count. Its entry in the stream of its
-- priority has the same two parts for its id, so streams hold no words, and what is removed leaves none behind in them.
-- A stream's consumer is a worker under the epoch in which it took the job; GIVEN_BACK has those that wait again.
local stem = KEYS[1]
local HEADER, IDS, JOBS, GROUPS = stem .. ':h', stem .. ':i', stem .. ':j', stem .. ':g'
local DEAD, REASONS = stem .. ':x', stem .. ':y'
local WORKERS, GIVEN_BACK = 'workers', '-'
local LOOKED_AT, PRIORITY_MAX = 1024, 9
local sub, format = string.sub, string.format

local function stream_of(priority) return stem .. ':s' .. priority end
local function due_of(priority) return stem .. ':d' .. priority end
local function number(value) return format('%.0f', value) end

local field = redis.call('HMGET', HEADER, 'e', 't', 'n')
-- Somebody has been here in a later epoch: what this script would do belongs to a history that has ended.
if field[1] and field[1] > EPOCH then return {'E'} end
if field[1] ~= EPOCH then
  redis.call('HSET', HEADER, 'e', EPOCH)
  for priority = 0, PRIORITY_MAX do
    local stream = stream_of(priority)
    if redis.call('EXISTS', stream) == 0 then
      redis.call('XGROUP', 'CREATE', stream, WORKERS, '0', 'MKSTREAM')
    end
    -- Workers of earlier epochs who hold nothing any more.
    for _, told in ipairs(redis.call('XINFO', 'CONSUMERS', stream, WORKERS)) do
      if told[4] == 0 then redis.call('XGROUP', 'DELCONSUMER', stream, WORKERS, told[2]) end
    end
  end
end

-- Store time never goes back: not below what was stored here, nor below what this caller was told elsewhere.
local clock = redis.call('TIME')
local now = format('%016x', clock[1] * 1000 + math.floor(clock[2] / 1000))
if field[2] and field[2] > now then now = field[2] end
if ARGV[1] > now then now = ARGV[1] end
local now_ms = tonumber(now, 16)

local function entry_of(job)
  return number(tonumber(sub(job, 1, 6), 16)) .. '-' .. number(tonumber(sub(job, 7), 16))
end

-- Of a job that somebody took, now or before: worker and attempt; nothing otherwise.
local function taken_by(job, priority)
  local entry = entry_of(job)
  local found = redis.call('XPENDING', stream_of(priority), WORKERS, entry, entry, 1)[1]
  if found then return found[2], found[4] end
end

-- A record: 1 priority, 2 to 17 when it was queued, 18 to 21 and 22 to 25 how long id and group are, both, the body.
local function named_in(record)
  local id_bytes, group_bytes = tonumber(sub(record, 18, 21), 16), tonumber(sub(record, 22, 25), 16)
  return sub(record, 26, 25 + id_bytes), sub(record, 26 + id_bytes, 25 + id_bytes + group_bytes)
end

-- Sorted as text, and no group begins like the members of another one.
local function prefix_of(group) return format('%04x', #group) .. group end

local last = field[3] and sub(field[3], 1, 6) == EPOCH and tonumber(sub(field[3], 7), 16) or 0
local grown = 0

local function queue(id, group, priority, body)
  last = last + 1
  local job = EPOCH .. format('%010x', last)
  local record = priority .. now .. format('%04x%04x', #id, #group) .. id .. group .. body
  redis.call('HSET', JOBS, job, record)
  redis.call('HSET', IDS, id, 'j' .. priority .. job)
  if group ~= '' then redis.call('ZADD', GROUPS, 0, prefix_of(group) .. id) end
  redis.call('XADD', stream_of(priority), entry_of(job), 'n', job)
  grown = grown + #record
end

local function unqueue(job, priority)
  local entry = entry_of(job)
  redis.call('XACK', stream_of(priority), WORKERS, entry)
  redis.call('XDEL', stream_of(priority), entry)
  redis.call('ZREM', due_of(priority), job)
end

-- Removes a job wherever it is, given its record.
local function drop(job, priority, record, dead)
  local id, group = named_in(record)
  redis.call('HDEL', IDS, id)
  if group ~= '' then redis.call('ZREM', GROUPS, prefix_of(group) .. id) end
  redis.call('HDEL', JOBS, job)
  grown = grown - #record
  if dead then
    redis.call('ZREM', DEAD, id)
    redis.call('HDEL', REASONS, job)
  else
    unqueue(job, priority)
  end
end

-- Where a job is: its number, priority, and whether it is dead; nothing if it is not there.
local function place_of(id)
  local place = redis.call('HGET', IDS, id)
  if place then return sub(place, 3), sub(place, 2, 2), sub(place, 1, 1) == 'd' end
end

-- What is told of a job: whether it is dead, how often it was taken, when it died, its record, and why.
local function told_of(job, priority, dead)
  local record = redis.call('HGET', JOBS, job)
  if dead then
    local why = redis.call('HGET', REASONS, job)
    return {1, tonumber(sub(why, 1, 8), 16), sub(why, 9, 24), record, sub(why, 25)}, #record + #why
  end
  local _, attempt = taken_by(job, priority)
  return {0, attempt or 0, '', record, ''}, #record
end

-- Some of the jobs with these ids, as many as BYTES allows but at least one, and whether all were told of.
local function page_of(ids, bytes_max)
  local found, bytes = {}, 0
  for i = 1, #ids do
    if bytes > bytes_max then return found, 1 end
    local size
    found[i], size = told_of(place_of(ids[i]))
    bytes = bytes + size
  end
  return found, 0
end

-- Notes what has changed; every script that changes something ends with it.
local function changed()
  redis.call('HSET', HEADER, 't', now, 'n', EPOCH .. format('%010x', last))
  if grown ~= 0 then redis.call('HINCRBY', HEADER, 'b', number(grown)) end
end
