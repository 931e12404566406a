-- ARGV: 4 epoch of the decision, 5 configuration, 6 not after (or empty), 7 kind of call (s, u or empty),
-- 8 its field, 9 client or UUID, 10 sequence, 11 answered through, 12 what to remember, 13 floor of contexts,
-- 14 generation, 15 to 19 how many fences, checks, mutations, stamps, and collections that may be empty now.
local kind, call, caller = ARGV[7], ARGV[8], ARGV[9]
local at = 19
local function take() at = at + 1; return ARGV[at] end

if deleted then return {'F', 'deleted', name, head} end
if ARGV[4] ~= EPOCH then return {'F', 'epoch', '', EPOCH} end
if kind ~= '' then
  local found = redis.call('HGET', CALLS, call)
  local age = kind == 'u' and UUID_AGE or CLIENT_AGE
  if found and tonumber(sub(found, 17, 32), 16) + age > now_ms then return {'R', found} end
end

local fences = {}
for _ = 1, tonumber(ARGV[15]) do
  local lock, token = take(), take()
  local highest = redis.call('HGET', FENCES, lock) or ZERO
  if token < highest then return {'F', 'fence', lock, highest} end
  fences[#fences + 1] = lock
  fences[#fences + 1] = token
end

local answered = ARGV[11]
if kind == 's' then
  local stored = redis.call('HGET', CLIENTS, caller)
  if stored and stored > answered then answered = stored end
  if ARGV[10] <= answered then return {'Q', answered} end
  local waiting = redis.call('ZLEXCOUNT', SEQUENCES, '(' .. caller .. '\0' .. answered, '(' .. caller .. '\1')
  if waiting >= CLIENT_MAX then
    return {'F', 'request_room', caller, format('%016x', redis.call('HLEN', CALLS))}
  end
elseif kind == 'u' then
  local waiting = redis.call('ZCOUNT', UUIDS, '(' .. number(now_ms - UUID_AGE), '+inf')
  if waiting >= UUID_MAX then
    return {'F', 'request_room', caller, format('%016x', redis.call('HLEN', CALLS))}
  end
end

if ARGV[5] < config then return {'F', 'config', '', config} end
if ARGV[6] ~= '' and now >= ARGV[6] then return {'F', 'not_after', '', now} end

local failed = {'F'}
for _ = 1, tonumber(ARGV[16]) do
  local what, checked, wanted, live = take(), take(), take(), take()
  local actual = ZERO
  if what == 'key' then
    local record = redis.call('HGET', RECORDS, checked)
    local lives = '0'
    if record then
      actual = sub(record, 1, 16)
      if sub(record, 17, 32) > now then lives = '1' end
    end
    if actual == wanted and lives == live then what = nil end
  else
    local stamps = redis.call('HGET', STAMPS, checked) or (stamps_floor .. stamps_floor)
    actual = live == 'm' and sub(stamps, 17, 32) or sub(stamps, 1, 16)
    if actual == wanted then what = nil end
  end
  if what then
    local n = #failed
    failed[n + 1], failed[n + 2], failed[n + 3] = what, checked, actual
  end
end
if #failed > 1 then return failed end

local count = tonumber(ARGV[17])
if count == 0 and exists and kind == '' then return {'C', head, now} end

local revision, sequence = head, 0
if count > 0 then
  sequence = sub(head, 1, 6) == EPOCH and tonumber(sub(head, 7), 16) + 1 or 1
  revision = EPOCH .. format('%010x', sequence)
  if not exists or sub(head, 1, 6) < EPOCH then cuts = cuts .. EPOCH .. head end
  config = ARGV[5]
  if ARGV[13] > floor_context then floor_context = ARGV[13] end
end

-- Everything is read before anything is written.
local stored, ordered, removed, due, undue, logged = {}, {}, {}, {}, {}, {}
local grown, log_bytes = 0, 0
for index = 0, count - 1 do
  local what, key, live, due_ms, data, event = take(), take(), take(), take(), take(), take()
  if sub(what, 2, 2) == 's' then key = key .. revision .. '-' .. format('%04x', index) end
  local before = redis.call('HSTRLEN', RECORDS, key)
  if before > 0 then grown = grown - (#key + before - 32) end
  local removes = sub(what, 1, 1) == 'r'
  if removes then
    removed[#removed + 1] = key
  else
    stored[#stored + 1] = key
    stored[#stored + 1] = revision .. live .. data
    ordered[#ordered + 1] = 0
    ordered[#ordered + 1] = key
    grown = grown + #key + #data
  end
  if due_ms ~= '' and not removes then
    due[#due + 1] = due_ms
    due[#due + 1] = key
  elseif before > 0 then
    undue[#undue + 1] = key
  end
  if event ~= '' then
    logged[#logged + 1] = key
    logged[#logged + 1] = (removes and 'r' or 'p') .. format('%08x', #event) .. event .. data
    log_bytes = log_bytes + #key + #data + #event
  end
end
local collections, joined = {}, {}
for i = 1, tonumber(ARGV[18]) do collections[i], joined[i] = take(), take() end
local stamps = hmget(STAMPS, collections)

-- The first write is one that an exhausted Redis refuses, so that it refuses all of them.
redis.call('HSET', HEADER, 'n', name, 'g', ARGV[14], 'o', origin, 'x', '1', 'h', revision, 'e', EPOCH, 'c', config,
  'fc', floor_context, 'fl', floor, 'cu', cuts, 't', now, 'lt', number(log_total + log_bytes))
if grown ~= 0 then redis.call('HINCRBY', HEADER, 'rb', number(grown)) end
each('HDEL', RECORDS, removed)
each('ZREM', ORDER, removed)
each('HSET', RECORDS, stored)
each('ZADD', ORDER, ordered)
each('ZREM', DUE, undue)
each('ZADD', DUE, due)
local moved = {}
for i = 1, #collections do
  local members = joined[i] == '1' and revision or (stamps[i] and sub(stamps[i], 17, 32) or stamps_floor)
  moved[2 * i - 1], moved[2 * i] = collections[i], revision .. members
end
each('HSET', STAMPS, moved)
for _ = 1, tonumber(ARGV[19]) do
  -- Stamps of what is empty are forgotten; the floor sees to it that none is ever shown a second time.
  local collection = take()
  local low, high = '-', '+'
  if collection ~= '' then low, high = '(' .. collection, '(' .. sub(collection, 1, -2) .. '0' end
  if redis.call('ZLEXCOUNT', ORDER, low, high) == 0 then
    local last = redis.call('HGET', STAMPS, collection)
    if last then
      redis.call('HDEL', STAMPS, collection)
      if sub(last, 1, 16) > stamps_floor then
        stamps_floor = sub(last, 1, 16)
        redis.call('HSET', HEADER, 'sf', stamps_floor)
      end
    end
  end
end
if #logged > 0 then
  -- Streams count in decimal and in two parts: those of a revision fit, the revision as a whole does not.
  redis.call('XADD', LOG, number(tonumber(EPOCH, 16)) .. '-' .. number(sequence),
    't', now .. format('%016x', log_total), unpack(logged))
end
if count > 0 and #fences > 0 then redis.call('HSET', FENCES, unpack(fences)) end

local function forget(client, through)
  local gone = redis.call('ZRANGEBYLEX', SEQUENCES, '[' .. client .. '\0', through)
  each('ZREM', SEQUENCES, gone)
  for i = 1, #gone do gone[i] = 's' .. gone[i] end
  each('HDEL', CALLS, gone)
end

if kind ~= '' then
  redis.call('HSET', CALLS, call, revision .. now .. ARGV[12])
  if kind == 'u' then
    redis.call('ZADD', UUIDS, now_ms, caller)
  else
    forget(caller, '[' .. caller .. '\0' .. answered)
    redis.call('ZADD', SEQUENCES, 0, caller .. '\0' .. ARGV[10])
    redis.call('HSET', CLIENTS, caller, answered)
    redis.call('ZADD', IDLE, now_ms, caller)
  end
  -- A few at a time, more than any call adds.
  local old = redis.call('ZRANGEBYSCORE', UUIDS, '-inf', number(now_ms - UUID_AGE), 'LIMIT', 0, 32)
  each('ZREM', UUIDS, old)
  for i = 1, #old do old[i] = 'u' .. old[i] end
  each('HDEL', CALLS, old)
  for _, client in ipairs(redis.call('ZRANGEBYSCORE', IDLE, '-inf', number(now_ms - CLIENT_AGE), 'LIMIT', 0, 2)) do
    forget(client, '(' .. client .. '\1')
    redis.call('HDEL', CLIENTS, client)
    redis.call('ZREM', IDLE, client)
  end
end
redis.call('SPUBLISH', stem .. HEADS, revision)
return {'C', revision, now}
