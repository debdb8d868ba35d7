-- trim: KEYS: at, log   ARGV: max length, length after a trim
local epoch, base, len = look()
local max, to = tonumber(ARGV[1]), tonumber(ARGV[2])
if not epoch or len <= max then return 0 end
redis.call('LTRIM', log, int(-to), '-1')
redis.call('HSET', at, '@base', int(base + len - to))
return 1
