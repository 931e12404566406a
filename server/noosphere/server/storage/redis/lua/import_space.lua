-- ARGV: 4 generation, 5 state (1 live, 2 deleted), 6 head, 7 configuration, 8 floor of contexts, 9 cuts, then locks and
-- their highest tokens. Says the same however often it is executed.
redis.call('HSET', HEADER, 'n', name, 'g', ARGV[4], 'o', origin, 'x', ARGV[5], 'h', ARGV[6], 'e', EPOCH, 'c', ARGV[7],
  'fc', ARGV[8], 'fl', ARGV[6], 'cu', ARGV[9], 't', now, 'lt', '0', 'sf', ARGV[6])
if #ARGV > 9 then redis.call('HSET', FENCES, unpack(ARGV, 10)) end
return 1
