-- acked: KEYS: at, log   ARGV: epoch, seq, id   → 1: written
-- The id guards against an ack of an event that another one took the place of.
local epoch, base, len = look()
local seq = tonumber(ARGV[2])
if epoch ~= ARGV[1] or id_at(base, len, seq) ~= ARGV[3] then return 0 end
if seq <= (tonumber(redis.call('HGET', at, '@acked')) or 0) then return 0 end
redis.call('HSET', at, '@acked', int(seq))
return 1
