local waiting, leased, oldest = 0, 0, nil
local function older(job)
  if not oldest or job < oldest then oldest = job end
end
for priority = 0, PRIORITY_MAX do
  local stream = stream_of(priority)
  local pending = redis.call('XPENDING', stream, WORKERS)
  local given_back = redis.call('XPENDING', stream, WORKERS, '-', '+', 1, GIVEN_BACK)[1]
  local back = 0
  for _, one in ipairs(pending[4] or {}) do
    if one[1] == GIVEN_BACK then back = tonumber(one[2]) end
  end
  waiting = waiting + redis.call('XLEN', stream) - pending[1] + back
  leased = leased + pending[1] - back
  if given_back then older(redis.call('XRANGE', stream, given_back[1], given_back[1])[1][2][2]) end
  local told, read = redis.call('XINFO', 'GROUPS', stream)[1], '0-0'
  for i = 1, #told, 2 do
    if told[i] == 'last-delivered-id' then read = told[i + 1] end
  end
  local first = redis.call('XRANGE', stream, '(' .. read, '+', 'COUNT', 1)[1]
  if first then older(first[2][2]) end
end
local since = oldest and sub(redis.call('HGET', JOBS, oldest), 2, 17) or '0'
return {'O', now, waiting, leased, redis.call('ZCARD', DEAD), since}
