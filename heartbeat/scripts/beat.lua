-- KEYS: leases. ARGV: id, last value confirmed, lease (ms).
-- Answers {'missing'}, {'claimed'}, {'back', value} or {'beat', new value, now}.
local s = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not s then return {'missing'} end
local old = tonumber(s)
if old == 0 then return {'claimed'} end
if old < tonumber(ARGV[2]) then return {'back', whole(old)} end
local value = whole(now + ARGV[3])
redis.call('ZADD', KEYS[1], value, ARGV[1])
return {'beat', value, whole(now)}
