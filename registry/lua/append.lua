-- append, careful: an event that may have been appended before.
-- KEYS: at, log   ARGV: id, max length, length after a trim
-- → {seq (0: no log), hash}
-- Base and index come from one moment: nothing can trim the log between the look and the answer.
local epoch, base, len = look()
if not epoch then return {0, redis.call('HGETALL', at)} end
local index = redis.call('LPOS', log, ARGV[1])
local seq
if index then
  seq = base + index
else
  seq = base + redis.call('RPUSH', log, ARGV[1]) - 1
  trim(base, len + 1, tonumber(ARGV[2]), tonumber(ARGV[3]))
end
return {seq, redis.call('HGETALL', at)}
