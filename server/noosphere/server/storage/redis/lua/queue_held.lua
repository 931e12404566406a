-- ARGV: 2 what becomes of them: x extended, d done, r tried again, b the same without counting, f given up;
-- 3 for how long, or why;
-- then of each lease: number, priority, epoch, attempt.
local what, held, any = ARGV[2], {}, false
for at = 4, #ARGV, 4 do
  local job, priority = ARGV[at], ARGV[at + 1]
  local consumer, attempt = taken_by(job, priority)
  -- An attempt may have been lost in a failover, and taken a second time under the same number.
  local holds = consumer and sub(consumer, 1, 6) == ARGV[at + 2] and number(attempt) == ARGV[at + 3]
  held[#held + 1] = holds and 1 or 0
  if holds then
    any = true
    if what == 'x' or what == 'r' or what == 'b' then
      redis.call('ZADD', due_of(priority), number(now_ms + ARGV[3]), job)
    end
    if what == 'r' or what == 'b' then
      -- One that counts less, one that does not more: see storage/facts/attempts.py.
      if what == 'b' and attempt % 4096 > 0 and attempt < 4294959104 then attempt = attempt + 4095 end
      redis.call('XCLAIM', stream_of(priority), WORKERS, GIVEN_BACK, 0, entry_of(job), 'RETRYCOUNT', attempt, 'JUSTID')
    elseif what == 'd' then
      drop(job, priority, redis.call('HGET', JOBS, job), false)
    elseif what == 'f' then
      local id = named_in(redis.call('HGET', JOBS, job))
      redis.call('HSET', IDS, id, 'd' .. priority .. job)
      redis.call('HSET', REASONS, job, format('%08x', attempt) .. now .. ARGV[3])
      redis.call('ZADD', DEAD, 0, id)
      unqueue(job, priority)
    end
  end
end
if any then changed() end
return {'O', now, held}
