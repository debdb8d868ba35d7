-- gap: what lies beyond the place that a session has reached.
-- KEYS: at, log   ARGV: epoch, sent, its id
-- → the ids after sent, or 0: break
local epoch, base, len = look()
local sent = tonumber(ARGV[2])
if epoch ~= ARGV[1] or base > sent + 1 then return 0 end
-- With base = sent + 1 the element at sent is trimmed away, and what follows is whole.
if base <= sent and id_at(base, len, sent) ~= ARGV[3] then return 0 end
return redis.call('LRANGE', log, int(sent + 1 - base), '-1')
