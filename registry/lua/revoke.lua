-- revoke: KEYS: revoked   ARGV: tokens issued before this ms, max age ms   Only upwards.
local was = tonumber(redis.call('GET', KEYS[1])) or 0
local ms = math.max(was, tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.0f', ms), 'PX', ARGV[2])
return 1
