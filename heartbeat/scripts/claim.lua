-- KEYS: leases. ARGV: id, value seen. Answers 1: claimed (score 0 now).
-- A lease that runs is never claimed, whatever was seen.
local s = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not s then return 0 end
local score = tonumber(s)
if score ~= tonumber(ARGV[2]) or score > now then return 0 end
redis.call('ZADD', KEYS[1], '0', ARGV[1])
return 1
