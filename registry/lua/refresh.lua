-- refresh: KEYS: at, log, revoked   ARGV: field, value, epoch, sent, its id, window ms
-- → {verdict (0: fine, 1: break, 2: re-home), end, revoked}
redis.call('HSETNX', at, ARGV[1], ARGV[2])
keep(ARGV[6])
local revoked = redis.call('GET', KEYS[3]) or ''
local epoch, base, len = look()
local sent = tonumber(ARGV[4])
if epoch ~= ARGV[3] then return {2, 0, revoked} end
local last = base + len - 1
if base > sent + 1 then return {1, last, revoked} end
-- Of a log that ends before sent, id_at answers nil: a break too.
if base <= sent and id_at(base, len, sent) ~= ARGV[5] then return {1, last, revoked} end
return {0, last, revoked}
