-- Most scripts begin with this text. KEYS[1] is user:{uid}:at, KEYS[2] user:{uid}:log.
local at, log = KEYS[1], KEYS[2]
local SENTINEL = string.rep('\0', 16)

-- Numbers become text without an exponent, however great.
local function int(n) return string.format('%.0f', n) end

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- Epoch, base and length of the log; nothing if there is no log, or one of its three parts is missing.
local function look()
  local meta = redis.call('HMGET', at, '@epoch', '@base')
  local base, len = tonumber(meta[2]), redis.call('LLEN', log)
  if meta[1] and base and len > 0 then return meta[1], base, len end
end

-- The element with this seq; nil where the log has none.
local function id_at(base, len, seq)
  if seq < base or seq >= base + len then return nil end
  return redis.call('LINDEX', log, int(seq - base))
end

-- An empty log under a new epoch. Nothing that was said about the old one holds.
local function make(epoch)
  redis.call('DEL', log)
  redis.call('RPUSH', log, SENTINEL)
  redis.call('HSET', at, '@epoch', epoch, '@base', '0')
  redis.call('HDEL', at, '@acked')
end

-- Both keys end in the same millisecond: one without the other is no log.
local function keep(window)
  local t = int(now() + tonumber(window))
  redis.call('PEXPIREAT', at, t)
  redis.call('PEXPIREAT', log, t)
end
