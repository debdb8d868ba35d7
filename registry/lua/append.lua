-- append, careful: an event that may have been appended before. It runs for every recipient after a takeover and does
-- without common.lua, whose text would cost more than these three commands.
-- KEYS: at, log   ARGV: id, max length, length after a trim
-- → {index of the id (-1: no list), hash}
-- Base and index come from one moment: nothing can trim the log between the look and the answer.
local at, log = KEYS[1], KEYS[2]
local index = redis.call('LPOS', log, ARGV[1])
if not index then
  local len = redis.call('RPUSHX', log, ARGV[1])
  if len > tonumber(ARGV[2]) then
    local base = tonumber(redis.call('HGET', at, '@base'))
    if base then
      redis.call('LTRIM', log, '-' .. ARGV[3], '-1')
      redis.call('HSET', at, '@base', string.format('%.0f', base + len - tonumber(ARGV[3])))
      len = tonumber(ARGV[3])
    end
  end
  index = len - 1
end
return {index, redis.call('HGETALL', at)}
