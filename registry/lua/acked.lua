-- acked: KEYS: at, log   ARGV: epoch, seq, id   → 1: written
-- The id guards against an ack of an event that another one took the place of. Seq 0, the sentinel's, is written too: the
-- user has loaded what he shows since the log was made.
local epoch, base, len = look()
local seq = tonumber(ARGV[2])
if epoch ~= ARGV[1] or id_at(base, len, seq) ~= ARGV[3] then return 0 end
if seq <= (tonumber(redis.call('HGET', at, '@acked')) or -1) then return 0 end
redis.call('HSET', at, '@acked', int(seq))
return 1
