-- ARGV: 4 collection, 5 and 6 the bounds in the order of the scan, 7 count, 8 command.
local keys = redis.call(ARGV[8], ORDER, ARGV[5], ARGV[6], 'LIMIT', 0, ARGV[7])
local stamps = redis.call('HGET', STAMPS, ARGV[4]) or (stamps_floor .. stamps_floor)
return {view(), stamps, keys, hmget(RECORDS, keys)}
