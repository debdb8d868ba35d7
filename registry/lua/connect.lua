-- connect, re-home: registers a session, makes the log if there is none, judges the resume.
-- KEYS: at, log, revoked
-- ARGV: field, value, random epoch, window ms, break pause ms, limit (0: none), field that it replaces ('': none),
--       resume epoch ('': no resume), resume seq, resume id
-- → {0, hash} over the limit, nothing was done
-- → {1, recovered, hash, ids, revoked}
local field, value, fresh = ARGV[1], ARGV[2], ARGV[3]
local limit, replaced = tonumber(ARGV[6]), ARGV[7]
local want, seq, id = ARGV[8], tonumber(ARGV[9]), ARGV[10]

if limit > 0 then
  local others = 0
  for _, f in ipairs(redis.call('HKEYS', at)) do
    if string.sub(f, 1, 1) ~= '@' and f ~= field and f ~= replaced then others = others + 1 end
  end
  if others >= limit then return {0, redis.call('HGETALL', at)} end
end

-- A log that lacks what the client has seen there went back to an older state: a restart from an old dump, a failover.
-- Others may have seen events that it no longer has, under numbers that it will give again: a new epoch. Not in every
-- connect, lest two such clients break each other's logs in turn.
local function went_back()
  local t = now()
  local made = tonumber(redis.call('HGET', at, '@made'))
  if made and t - made < tonumber(ARGV[5]) and t >= made then return end
  make(fresh)
  redis.call('HSET', at, '@made', int(t))
end

local recovered = 0
local epoch, base, len = look()
if not epoch then
  make(fresh)
elseif want == epoch and seq >= base then
  if id_at(base, len, seq) == id then recovered = 1 else went_back() end
end

if replaced ~= '' then redis.call('HDEL', at, replaced) end
redis.call('HSET', at, field, value)
keep(ARGV[4])
return {1, recovered, redis.call('HGETALL', at), redis.call('LRANGE', log, '0', '-1'), redis.call('GET', KEYS[3]) or ''}
