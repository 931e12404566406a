-- ARGV: 4 after, 5 the first entry to show, 6 count.
if deleted then return {'D'} end
if ARGV[4] < floor then return {'K', view()} end
return {'O', view(), redis.call('XRANGE', LOG, ARGV[5], '+', 'COUNT', ARGV[6])}
