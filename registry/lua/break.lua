-- break: KEYS: at, log   ARGV: the epoch that broke, a random epoch, window ms   → the epoch ('': no log)
-- Whoever comes second, with the same evidence, finds another epoch and breaks nothing.
local epoch = redis.call('HGET', at, '@epoch')
if not epoch then return '' end
if epoch ~= ARGV[1] then return epoch end
make(ARGV[2])
redis.call('HSET', at, '@made', int(now()))
keep(ARGV[3])
return ARGV[2]
