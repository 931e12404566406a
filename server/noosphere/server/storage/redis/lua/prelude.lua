-- Every script begins with this, after the lines that set EPOCH (6 hex digits), HEADS (the end of a channel) and ONLY:
-- whether it must not write anything, because Redis refuses all scripts that may.
-- Revisions are 16 hex digits and compare as text: numbers of Lua are exact to 2^53 only.
-- KEYS[1] is the stem of all keys of one namespace; its hash tag keeps them on one node.
-- ARGV: 1 name, 2 origin, 3 the latest time that the caller has seen, as 16 hex digits.
local stem, name, origin = KEYS[1], ARGV[1], ARGV[2]
local HEADER, RECORDS, ORDER, DUE = stem .. ':h', stem .. ':k', stem .. ':o', stem .. ':d'
local STAMPS, LOG, FENCES = stem .. ':c', stem .. ':l', stem .. ':f'
local CALLS, SEQUENCES, CLIENTS = stem .. ':r', stem .. ':q', stem .. ':m'
local UUIDS, IDLE = stem .. ':u', stem .. ':i'
local ZERO = '0000000000000000'
local sub, format = string.sub, string.format

local field = redis.call('HMGET', HEADER, 'n', 'x', 'h', 'e', 'c', 'fc', 'fl', 'cu', 't', 'sf', 'lt')
local exists, deleted = field[2] and true or false, field[2] == '2'
local head, epoch = field[3] or origin, field[4] or ''
local config, floor_context, floor = field[5] or ZERO, field[6] or origin, field[7] or origin
local cuts, stamps_floor, log_total = field[8] or '', field[10] or ZERO, tonumber(field[11] or '0')

if field[1] and field[1] ~= name then
  return redis.error_reply('NAMESAKE ' .. field[1])
end
-- Somebody has been here in a later epoch: what this script would do belongs to a history that has ended.
if epoch > EPOCH or sub(head, 1, 6) > EPOCH then
  return {'E'}
end
-- Nobody else asks who may not write: a process that was made a replica has to be noticed all the same.
if ONLY and not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY a replica')
end
if exists and epoch < EPOCH then
  -- Until it is noted, somebody of an earlier epoch may still write behind what is read.
  if ONLY then return redis.error_reply('UNNOTED nobody has used it in this epoch') end
  redis.call('HSET', HEADER, 'e', EPOCH)
end

-- Store time never goes back: not below what was stored here, nor below what this caller was told elsewhere.
local clock = redis.call('TIME')
local now = format('%016x', clock[1] * 1000 + math.floor(clock[2] / 1000))
if field[9] and field[9] > now then now = field[9] end
if ARGV[3] > now then now = ARGV[3] end
local now_ms = tonumber(now, 16)

local function number(value) return format('%.0f', value) end

local function view()
  return (field[2] or '0') .. head .. config .. floor_context .. floor .. now .. cuts
end

-- unpack has a limit of some thousands.
local function hmget(key, names)
  local found = {}
  for first = 1, #names, 1000 do
    local part = redis.call('HMGET', key, unpack(names, first, math.min(first + 999, #names)))
    for i = 1, #part do found[first + i - 1] = part[i] end
  end
  return found
end

local function each(command, key, items)
  for first = 1, #items, 1000 do
    redis.call(command, key, unpack(items, first, math.min(first + 999, #items)))
  end
end
