-- ARGV: 4 the copy's word.
local copy = stem .. ':x' .. ARGV[4]
return redis.call('UNLINK', copy .. ':k', copy .. ':o', copy .. ':d')
